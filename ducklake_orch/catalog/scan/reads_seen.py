"""Count which columns reads have conditions on, for `lake.workload()` and maintenance, if `workload` is set.

Each process keeps its counts in memory and adds them to a table of ducklake-orch in the catalog once a minute and at
exit. If the lake is locked, it tries again a minute later. Values in conditions are never stored. No read fails, and
none waits long, because of its count.
"""

import atexit
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from ducklake_orch.catalog.metadata import Metadata, MetadataTransaction, OwnTable, TableDef, live, text
from ducklake_orch.catalog.scan.predicate import Node, Predicate, parse_predicate
from ducklake_orch.catalog.scan.scan_plan import classify
from ducklake_orch.config.lake import LakeConfig, RetryPolicy
from ducklake_orch.engine.quoting import TableName, folded
from ducklake_orch.errors import DuckLakeOrchError

log = logging.getLogger("ducklake_orch")
READS = OwnTable(
    "ducklake_orch_reads",
    "day VARCHAR(10) NOT NULL, table_id BIGINT NOT NULL, column_id BIGINT NOT NULL, kind VARCHAR(5) NOT NULL,"
    " read_count BIGINT NOT NULL, planned_count BIGINT NOT NULL, file_count BIGINT NOT NULL,"
    " opened_count BIGINT NOT NULL",
)
# The column id of the row that counts all reads of a table.
WHOLE_TABLE = -1
# The figures of a key, with their columns in the catalog.
_FIGURES = {"reads": "read_count", "planned": "planned_count", "files": "file_count", "opened": "opened_count"}
_KEPT = timedelta(days=60)
_WRITE_EVERY_S, _PLAN_EVERY_S = 60.0, 10.0
_EQUAL = ("COMPARE_EQUAL", "COMPARE_IN", "COMPARE_NOT_DISTINCT_FROM")
_RANGE = (
    *("COMPARE_LESSTHAN", "COMPARE_LESSTHANOREQUALTO", "COMPARE_GREATERTHAN", "COMPARE_GREATERTHANOREQUALTO"),
    "COMPARE_BETWEEN",
)
_COMBINED = ("CONJUNCTION_AND", "CONJUNCTION_OR", "OPERATOR_NOT")
# A table, a column and the kind of its condition: `equal`, `range` or `other`.
Key = tuple[int, int, str]


@dataclass
class _Counts:
    """The counts of this process for a lake that are not in the catalog yet.

    Attributes:
        figures: For each key the number of reads, of those whose files were counted, of the table's files at that
            time, and of those files that the read opened.
        written: When counts were last written, by the clock of `time.monotonic`.
        planned: When the files of a read were last counted, by table.
        refused: Whether the catalog refuses the counts of this process, for example because it may only read.
    """

    config: LakeConfig
    figures: dict[Key, Counter[str]] = field(default_factory=dict)
    written: float = field(default_factory=time.monotonic)
    planned: dict[int, float] = field(default_factory=dict)
    refused: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, figures: Mapping[Key, Mapping[str, int]]) -> None:
        with self.lock:
            for key, counts in figures.items():
                self.figures.setdefault(key, Counter()).update(counts)

    def take(self, *, now: bool) -> dict[Key, Counter[str]]:
        """Return the counts to write, which are no longer kept; none if it is not time yet."""
        with self.lock:
            if not (now or time.monotonic() - self.written > _WRITE_EVERY_S):
                return {}
            self.written = time.monotonic()
            taken, self.figures = self.figures, {}
            return taken

    def is_planning_due(self, table_id: int) -> bool:
        """Return whether to count the files of this read; a sample suffices."""
        with self.lock:
            is_due = time.monotonic() - self.planned.get(table_id, -_PLAN_EVERY_S) >= _PLAN_EVERY_S
            if is_due:
                self.planned[table_id] = time.monotonic()
            return is_due


_KNOWN: dict[tuple[str, str | None], _Counts] = {}
# A child would write the counts of its parent again, and a lock of another thread would never be released.
os.register_at_fork(after_in_child=_KNOWN.clear)


def _counts(config: LakeConfig) -> _Counts | None:
    """Return the counts of a lake; None if its reads are not counted."""
    is_pinned = config.snapshot is not None or config.as_of is not None
    if not config.workload or config.read_only or is_pinned or config.storage is None:
        return None
    key = config.catalog.to_url(), config.metadata_schema
    if not _KNOWN:
        atexit.register(_write_all)
    counts = _KNOWN.setdefault(key, _Counts(config))
    return None if counts.refused else counts


def _write_all() -> None:
    for counts in list(_KNOWN.values()):
        write_reads(counts.config, now=True)


def note_read(metadata: Metadata, table: TableDef, at: int, where: Predicate | None, opened: int | None = None) -> None:
    """Count a read of a table.

    Args:
        metadata: The metadata tables.
        table: The table at the snapshot.
        at: The snapshot.
        where: The condition of the read.
        opened: How many files the read opens, if that is known.
    """
    if (counts := _counts(metadata.config)) is not None:
        with _harmless():
            _count(counts, metadata, table, at, where, opened)


def _count(
    counts: _Counts, metadata: Metadata, table: TableDef, at: int, where: Predicate | None, opened: int | None
) -> None:
    figures = {"reads": 1}
    if where is not None and counts.is_planning_due(table.table_id):
        files = f"{metadata.table_sql('ducklake_data_file')} WHERE table_id = {table.table_id} AND {live(at)}"
        total = int(metadata.rows(f"SELECT count(*) FROM {files}")[0][0])
        opened = len(classify(metadata, table, at, where.text)) if opened is None else opened
        figures |= {"planned": 1, "files": total, "opened": opened}
    keys = {(table.table_id, WHOLE_TABLE, "")}
    if where is not None:
        keys |= {(table.table_id, column_id, kind) for column_id, kind in _conditions(where.tree, table)}
    counts.add(dict.fromkeys(keys, figures))


def note_read_of(metadata: Metadata, name: TableName, at: int, where: str | None) -> None:
    """Count a read of a table that is not planned here; reads of views are not counted."""
    if _counts(metadata.config) is None:
        return
    with _harmless():
        if (table := metadata.find_table(name, at)) is not None:
            predicate = None if where is None else parse_predicate(metadata.con, where, table.columns)
            note_read(metadata, table, at, predicate)


@contextmanager
def _harmless() -> Iterator[None]:
    """Log errors of a block: nothing that goes wrong while a read is counted may fail the read."""
    try:
        yield
    except Exception as error:
        log.debug("A read is not counted: %s", error)


def _conditions(node: Node, table: TableDef) -> Iterator[tuple[int, str]]:
    """Yield the columns that a condition uses, each with the kind of the comparison.

    The kind is `other` if the column is within an expression, because its bounds then tell little.
    """
    if node["type"] in _COMBINED:
        for part in node["children"]:
            yield from _conditions(part, table)
        return
    operands = [node.get("left"), node.get("right"), node.get("input"), *node.get("children", [])[:1]]
    operands = [operand.get("child", operand) for operand in operands if isinstance(operand, dict)]
    is_plain = any(operand["class"] == "COLUMN_REF" for operand in operands)
    kind = "equal" if node["type"] in _EQUAL else "range" if node["type"] in _RANGE else "other"
    kind = kind if is_plain else "other"
    ids, waiting = {folded(column.name): column.column_id for column in table.columns}, list[Any]([node])
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if part.get("class") == "COLUMN_REF" and (name := folded(part["column_names"][0])) in ids:
                yield ids[name], kind
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part


def write_reads(config: LakeConfig, *, now: bool = False) -> None:
    """Add the counts of this process to those in the catalog, if it is time.

    Args:
        config: The lake.
        now: Whether to write them in any case.
    """
    counts = _counts(config)
    if counts is None or not (taken := counts.take(now=now)):
        return
    try:
        READS.write(_patient_for_a_moment(config), "adding the counts of reads", lambda to: _put(to, taken))
    except Exception as error:  # no read fails because of them
        log.debug("The counts of reads are not written: %r", error)
        if isinstance(error, DuckLakeOrchError) and error.retryable:
            counts.add(taken)
        else:
            counts.refused = True


def _patient_for_a_moment(config: LakeConfig) -> LakeConfig:
    """Return a configuration that neither waits long for others, nor creates the lake."""
    moment = timedelta(seconds=0.1)
    changes: dict[str, Any] = {"lock_timeout": moment, "retry": RetryPolicy(max_attempts=1)}
    changes |= {"pool": config.pool.model_copy(update={"wait": moment}), "create_if_missing": False, "options": {}}
    if "busy_timeout" in type(config.catalog).model_fields:
        changes["catalog"] = config.catalog.model_copy(update={"busy_timeout": 100})
    return config.model_copy(update=changes)


def _put(transaction: MetadataTransaction, figures: Mapping[Key, Mapping[str, int]]) -> None:
    today = datetime.now(UTC).date()
    known = {key for key, _ in _stored(transaction.metadata, f"day = '{today}'")}
    for (table_id, column_id, kind), counts in figures.items():
        if (table_id, column_id, kind) in known:
            added = ", ".join(f"{column} = {column} + {counts.get(name, 0)}" for name, column in _FIGURES.items())
            of_key = f"table_id = {table_id} AND column_id = {column_id} AND kind = '{kind}'"
            transaction.change(READS.name, f"UPDATE {{}} SET {added} WHERE day = '{today}' AND {of_key}")
        else:
            columns = ", ".join(("day", "table_id", "column_id", "kind", *_FIGURES.values()))
            values = ", ".join(str(counts.get(name, 0)) for name in _FIGURES)
            row = f"'{today}', {table_id}, {column_id}, '{kind}', {values}"
            transaction.change(READS.name, f"INSERT INTO {{}} ({columns}) VALUES ({row})")
    transaction.change(READS.name, f"DELETE FROM {{}} WHERE day < '{today - _KEPT}'")


def read_counts(metadata: Metadata, days: int) -> dict[Key, dict[str, int]]:
    """Return the counts of the last days in the catalog, today included."""
    if not READS.table_exists(metadata):
        return {}
    since = datetime.now(UTC).date() - timedelta(days=days - 1)
    return dict(_stored(metadata, f"day >= '{since}'"))


def _stored(metadata: Metadata, condition: str) -> Iterator[tuple[Key, dict[str, int]]]:
    dialect = metadata.dialect
    columns = dialect.texts(("table_id", "column_id", "kind", *(f"sum({column})" for column in _FIGURES.values())))
    table = dialect.table(READS.name)
    sql = f"select {columns} from {table} where {condition} group by table_id, column_id, kind"
    for row in metadata.rows(dialect.query(sql)):
        table_id, column_id, kind, *sums = (text(cell) or "" for cell in row)
        yield (int(table_id), int(column_id), kind), dict(zip(_FIGURES, (int(float(n)) for n in sums), strict=True))
