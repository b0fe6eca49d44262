"""What the workers of a simulation do: operations, each determined by the seed and its number."""

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa

from ducklake_orch import CommitInfo, DuckLake, LakeConfig, MaintenancePolicy
from ducklake_orch.catalog.lifecycle import Retention, expire
from ducklake_orch.engine.attach import Access, attach_statements, secret_statements
from ducklake_orch.engine.extensions import open_database
from ducklake_orch.errors import DuckLakeOrchError, UnknownOutcomeError
from ducklake_orch.results import WriteResult
from tests.simulation.work import Outcome
from tests.support.random_verbs import TABLES, Ids, Rows, Verb, delete_effect, random_verb, update_effect

# More than the ids that one operation uses.
_IDS_EACH = 100
# The rows of every table at the start, by id; merges change them, too.
FIRST_ROWS: Rows = {key: (key % 3, 0) for key in range(12)}
# Clean-up spares nothing but the files of running writes. Orphans are an hour old at least, as the storage may list
# files of running writes; a lake of a few seconds has none before the end.
_POLICY = MaintenancePolicy.model_validate(
    {"merge": {"min_files": 2}, "rewrite": {"delete_threshold": 0.01}, "cleanup": {"older_than": "0s"}}
    | {"orphans": {"action": "delete", "older_than": "1h"}, "force": True}
)
_KINDS = {
    "change": 8,
    "transaction": 4,
    "stage": 2,
    "rollback": 1,
    "maintain": 3,
    "expire": 1,
    "clean up": 1,
    "read": 3,
}
_ATTEMPTS = 4


@dataclass(frozen=True)
class Operation:
    """An operation of a worker."""

    seed: int
    number: int
    by_engine: bool = False

    @cached_property
    def kind(self) -> str:
        """What it does."""
        rng = self._random("kind")
        if self.by_engine and rng.random() < 0.5:
            return "engine"
        return rng.choices(list(_KINDS), list(_KINDS.values()))[0]

    @cached_property
    def verbs(self) -> list[Verb]:
        """The changes that it makes, in one snapshot."""
        rng, ids = self._random("verbs"), Ids(self.number * _IDS_EACH + len(FIRST_ROWS))
        if self.kind == "engine":
            return [_engine_verb(rng, ids) for _ in range(rng.choice((1, 1, 2)))]
        if self.kind not in ("change", "transaction", "stage"):
            return []
        ids.committed.extend(FIRST_ROWS)
        return [random_verb(rng, ids) for _ in range(1 if self.kind == "change" else rng.choice((2, 3)))]

    @property
    def once(self) -> bool:
        """Whether it has an idempotency key, so that it can be repeated although its outcome is unknown."""
        return self.kind != "engine" and (self.kind != "change" or self.verbs[0].keyed)

    def run(self, lake: DuckLake) -> Outcome:
        """Run it as a task does that is tried again."""
        unknown = False
        for attempt in range(_ATTEMPTS):
            try:
                return _RUN[self.kind](self, lake)
            except DuckLakeOrchError as error:
                unknown = unknown or isinstance(error, UnknownOutcomeError)
                if attempt == _ATTEMPTS - 1 or not (error.retryable or (unknown and self.once)):
                    return Outcome("unknown" if unknown else "failed", error=f"{type(error).__name__}: {error}")
        raise AssertionError("the last attempt returns")

    @property
    def key(self) -> str:
        """Its idempotency key."""
        return f"operation {self.number}"

    def commit(self, **more: Any) -> CommitInfo:
        """The mark of its snapshot."""
        return CommitInfo(extra={"operation": self.number, **more})

    def random(self, lake: DuckLake) -> Random:
        """Return a source of choices that depend on the state of the lake."""
        return self._random(str(lake.snapshots(limit=1)[0].snapshot_id))

    def _random(self, purpose: str) -> Random:
        return Random(f"{self.seed} {self.number} {purpose}")


class _Marked:
    """A lake whose verbs carry the key and the mark of an operation."""

    def __init__(self, lake: DuckLake, operation: Operation) -> None:
        self._lake, self._operation = lake, operation

    def write(self, rows: pa.Table, table: str, mode: str, **more: Any) -> WriteResult:
        """Write rows; every second append keeps them in the catalog."""
        inline = "auto" if mode == "append" and self._operation.number % 2 else "never"
        commit, key = self._operation.commit(), self._operation.key
        return self._lake.write(rows, table, mode=mode, inline=inline, commit=commit, idempotency_key=key, **more)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        key = {"idempotency_key": self._operation.key} if self._operation.verbs[0].keyed else {}
        return partial(getattr(self._lake, name), commit=self._operation.commit(), **key)


def _change(operation: Operation, lake: DuckLake) -> Outcome:
    result = operation.verbs[0].run(_Marked(lake, operation))
    return Outcome("committed", getattr(result, "snapshot_id", None))


def _transact(operation: Operation, lake: DuckLake) -> Outcome:
    isolation: Any = "serializable" if operation.number % 3 == 0 else "snapshot"
    commit = operation.commit()
    with lake.transaction(idempotency_key=operation.key, commit=commit, isolation=isolation) as tx:
        for verb in operation.verbs:
            verb.run(tx)
    return Outcome("committed", tx.result.snapshot_id if tx.result else None)


def _stage(operation: Operation, lake: DuckLake) -> Outcome:
    stage = lake.stage(operation.key)
    if stage.info().status == "open":
        with stage.transaction(idempotency_key=operation.key) as tx:
            for verb in operation.verbs:
                verb.run(tx)
    try:
        return Outcome("committed", stage.publish(commit=operation.commit()).snapshot_id)
    except DuckLakeOrchError as error:
        if not isinstance(error, UnknownOutcomeError) and not error.retryable:
            stage.discard()
        raise


def _roll_back(operation: Operation, lake: DuckLake) -> Outcome:
    rng = operation.random(lake)
    table = rng.choice(TABLES)
    to = rng.choice([found.snapshot_id for found in lake.snapshots(limit=6) if found.snapshot_id >= len(TABLES)])
    with lake.transaction(idempotency_key=operation.key, commit=operation.commit(table=table, to=to)) as tx:
        tx.rollback(table, to)
    return Outcome("committed", tx.result.snapshot_id if tx.result else None)


def _maintain(operation: Operation, lake: DuckLake) -> Outcome:
    names = operation.random(lake).choice((["flush"], ["merge"], ["rewrite"], ["flush", "rewrite", "merge"]))
    lake.maintain(_POLICY, operations=names)
    return Outcome("done")


def _expire(operation: Operation, lake: DuckLake) -> Outcome:
    """Expire some of the older snapshots."""
    older = remember_marks(lake)[:-3]
    only = operation.random(lake).sample(older, len(older) // 2)
    expire(lake.config, Retention(datetime.now(UTC) + timedelta(days=2)), only=only)
    return Outcome("done")


def remember_marks(lake: DuckLake) -> list[int]:
    """Keep the marks of all snapshots beside the lake: the model needs them, also those that expire.

    Returns the ids of the snapshots, in order.
    """
    snapshots = lake.snapshots()
    with _marks_of(lake.config).open("a") as file:
        for snapshot in snapshots:
            file.write(json.dumps([snapshot.snapshot_id, snapshot.extra or {}]) + "\n")
    return sorted(snapshot.snapshot_id for snapshot in snapshots)


def remembered_marks(lake: DuckLake) -> dict[int, Any]:
    """Return the mark of each snapshot that was remembered."""
    return dict(json.loads(line) for line in _marks_of(lake.config).read_text().splitlines())


def _marks_of(config: LakeConfig) -> Path:
    return Path(str(config.data_path)).parent / "marks.jsonl"


def _clean_up(operation: Operation, lake: DuckLake) -> Outcome:
    lake.maintain(_POLICY, operations=["cleanup", "orphans"])
    return Outcome("done")


def _engine_verb(rng: Random, ids: Ids) -> Verb:
    """Return a statement of DuckDB's own SQL; it runs on a connection."""
    table, part, rest = rng.choice(TABLES), rng.randrange(3), rng.randrange(4)
    kind = rng.choice(("insert", "insert", "delete", "update"))
    if kind == "insert":
        new = ids.rows(rng)
        values = ", ".join(f"({key}, {p}, {v})" for key, (p, v) in new.items())
        return Verb(table, lambda con: con.execute(f"INSERT INTO {table} VALUES {values}"), lambda rows: rows | new)
    if kind == "delete":
        return Verb(
            table,
            lambda con: con.execute(f"DELETE FROM {table} WHERE id % 4 = {rest} AND p = {part}"),
            delete_effect(rest, part),
        )
    return Verb(
        table,
        lambda con: con.execute(f"UPDATE {table} SET v = v + 1 WHERE p = {part}"),
        update_effect(part),
    )


def _run_in_engine(operation: Operation, lake: DuckLake) -> Outcome:
    """Run a transaction of the DuckLake extension, as another program does that knows nothing of ducklake-orch."""
    alias, mark = lake.config.alias, json.dumps(operation.commit().extra)
    commits = False
    with closing(open_database(lake.config.required_extensions, {})) as con:
        try:
            for statement in (
                *secret_statements(lake.config, reveal=True),
                *attach_statements(lake.config, Access(), create=False, reveal=True),
            ):
                con.execute(statement)
            con.execute(f"USE {alias}")
            con.execute("BEGIN")
            con.execute(f"CALL ducklake_set_commit_message('{alias}', 'engine', NULL, extra_info => '{mark}')")
            for verb in operation.verbs:
                verb.run(con)
            commits = True
            con.execute("COMMIT")
        except duckdb.Error as error:
            return Outcome("unknown" if commits else "failed", error=f"the engine: {error}")
    return Outcome("committed")


def _read(operation: Operation, lake: DuckLake) -> Outcome:
    table, snapshot = operation.random(lake).choice(TABLES), lake.snapshots(limit=1)[0].snapshot_id
    rows = sorted(tuple(row.values()) for row in lake.read(table, snapshot=snapshot).to_pylist())
    return Outcome("done", rows=[(snapshot, table, rows)])


_RUN: dict[str, Callable[[Operation, DuckLake], Outcome]] = {
    "change": _change,
    "transaction": _transact,
    "stage": _stage,
    "rollback": _roll_back,
    "maintain": _maintain,
    "expire": _expire,
    "clean up": _clean_up,
    "read": _read,
    "engine": _run_in_engine,
}


def applied(operation: Operation, mark: Any, truth: Sequence[dict[str, Rows]]) -> dict[str, Rows]:
    """Return the rows of all tables after an operation.

    Args:
        operation: The operation.
        mark: What its snapshot says about it.
        truth: The rows at each snapshot before, by the snapshot's id.
    """
    tables = dict(truth[-1])
    if operation.kind == "rollback":
        tables[mark["table"]] = truth[mark["to"]][mark["table"]]
    for verb in operation.verbs:
        tables[verb.table] = verb.effect(tables[verb.table])
    return tables
