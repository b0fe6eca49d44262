"""Compare a lake after a simulation with a model of its rows: history, feed, files, and what the workers were told."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

from ducklake_orch import DuckLake, LakeConfig
from ducklake_orch.catalog.commit.active_writes import LEASES
from ducklake_orch.catalog.lifecycle import Retention, clean_up, delete_orphans, expire
from ducklake_orch.errors import DuckLakeOrchError
from tests.simulation.operations import FIRST_ROWS, Operation, applied, remember_marks, remembered_marks
from tests.simulation.work import Outcome
from tests.support.random_verbs import TABLES, Rows


def problems_of(
    config: LakeConfig, first: int, operations: Mapping[int, Operation], outcomes: Mapping[int, Outcome]
) -> list[str]:
    """Return what is wrong with a lake after its workers have ended.

    Args:
        config: The lake.
        first: Its latest snapshot at the start, in which each table has the first rows.
        operations: What the workers ran, by number.
        outcomes: How each operation ended.
    """
    try:
        return _problems_of(config, first, operations, outcomes)
    except (duckdb.Error, DuckLakeOrchError) as error:
        return [f"the lake cannot be read: {type(error).__name__}: {error}"]


def _problems_of(
    config: LakeConfig, first: int, operations: Mapping[int, Operation], outcomes: Mapping[int, Outcome]
) -> list[str]:
    lake = DuckLake(config)
    retained = remember_marks(lake)
    marks = remembered_marks(lake)
    if lost := set(range(first + 1, retained[-1] + 1)) - marks.keys():
        return [f"snapshots {sorted(lost)} expired that no expiry was to remove"]
    committed: dict[int, list[int]] = {}
    for at in range(first + 1, retained[-1] + 1):
        if "operation" in marks[at]:
            committed.setdefault(marks[at]["operation"], []).append(at)
    truth = _truth(first, retained[-1], marks, operations)
    found = _wrong_outcomes(committed, operations, outcomes, truth)
    found += _wrong_rows(lake, [at for at in retained if at >= first], truth)
    found += _wrong_reads(outcomes, truth)
    found += _wrong_feed(lake, [at for at in retained if at > first], truth)
    report = lake.fsck(deep=True, storage=True)
    found += [f"fsck: {finding}" for finding in report.findings if finding.severity == "error"]
    return found or _wrong_files(lake, truth)


def _wrong_outcomes(
    committed: Mapping[int, Sequence[int]],
    operations: Mapping[int, Operation],
    outcomes: Mapping[int, Outcome],
    truth: Sequence[dict[str, Rows]],
) -> list[str]:
    """Compare what the workers were told with the snapshots."""
    found = []
    for number, outcome in outcomes.items():
        at = committed.get(number, [])
        if len(at) > 1 and not _may_be_repeated(operations[number], at[-1], truth):
            found.append(f"{_named(operations[number])} was committed {len(at)} times, as {at}")
        if outcome.status == "failed" and at:
            found.append(f"{_named(operations[number])} failed ({outcome.error}), but is snapshot {at}")
        told = outcome.snapshot
        # A verb that is run again and finds nothing to change is told the latest snapshot.
        if (
            outcome.status == "committed"
            and at
            and told is not None
            and told not in at
            and not _may_be_repeated(operations[number], told, truth)
        ):
            found.append(f"{_named(operations[number])} was told {told}, but is snapshot {at}")
        if outcome.status == "committed" and not at and _changes_rows(operations[number], outcome.snapshot, truth):
            found.append(f"{_named(operations[number])} was told {outcome.snapshot}, but was not committed")
    return found


def _may_be_repeated(operation: Operation, at: int, truth: Sequence[dict[str, Rows]]) -> bool:
    """Whether a verb can run again without harm, as replacements and deletions do; rows that are there twice show."""
    return operation.kind == "change" and applied(operation, {}, truth[: at + 1]) == truth[at]


def _changes_rows(operation: Operation, at: int | None, truth: Sequence[dict[str, Rows]]) -> bool:
    """Whether an operation changes rows at a snapshot; if that is unknown, at each one. It then has to be committed."""
    if operation.kind == "rollback":  # to rows that are the same
        return False
    snapshots = range(len(truth)) if at is None else [at]
    return all(applied(operation, {}, truth[: snapshot + 1]) != truth[snapshot] for snapshot in snapshots)


def _truth(
    first: int, last: int, marks: Mapping[int, Any], operations: Mapping[int, Operation]
) -> list[dict[str, Rows]]:
    """Return the rows that each snapshot must have, by its id; those before the first are empty."""
    nothing: dict[str, Rows] = {table: {} for table in TABLES}
    truth = [nothing] * first + [dict.fromkeys(TABLES, FIRST_ROWS)]
    for at in range(first + 1, last + 1):
        number = marks[at].get("operation")
        truth.append(truth[-1] if number is None else applied(operations[number], marks[at], truth))
    return truth


def _wrong_rows(lake: DuckLake, retained: Sequence[int], truth: Sequence[dict[str, Rows]]) -> list[str]:
    """Read every table at every retained snapshot by SQL, and at the newest ones by scan plans, too."""
    found = []
    with lake.connect(read_only=True) as con:
        for at in retained:
            for table in TABLES:
                rows = con.execute(f"SELECT id, p, v FROM {table} AT (VERSION => {at})").fetchall()
                found += _difference(f"{table} at snapshot {at}", rows, truth[at][table])
    for at in retained[-2:]:
        for table in TABLES:
            read = [tuple(row.values()) for row in lake.read(table, snapshot=at).to_pylist()]
            found += _difference(f"{table} at snapshot {at}, by its plan", read, truth[at][table])
    return found


def _wrong_reads(outcomes: Mapping[int, Outcome], truth: Sequence[dict[str, Rows]]) -> list[str]:
    """Compare what the readers among the workers have read."""
    return [
        problem
        for number, outcome in outcomes.items()
        for at, table, rows in outcome.rows
        for problem in _difference(f"{table} at snapshot {at}, read by operation {number}", rows, truth[at][table])
    ]


def _wrong_feed(lake: DuckLake, retained: Sequence[int], truth: Sequence[dict[str, Rows]]) -> list[str]:
    """Apply the change feed to the rows of the first snapshot whose successors are all retained."""
    whole = [at for at in retained if retained[-1] - at == len(retained) - 1 - retained.index(at)]
    if len(whole) < 2:
        return []
    found = []
    for table in TABLES:
        rows = Counter(_tuples(truth[whole[0]][table]))
        changes = lake.changes(table, whole[1], whole[-1]).to_pylist()
        for at in whole[1:]:
            for change in changes:
                if change["snapshot_id"] == at:
                    row = (change["id"], change["p"], change["v"])
                    rows[row] += 1 if change["change_type"] in ("insert", "update_postimage") else -1
            found += _difference(f"{table} at snapshot {at}, by its feed", list(rows.elements()), truth[at][table])
            if any(count < 0 for count in rows.values()):
                found.append(f"the feed of {table} removes a row at {at} that is not there")
    return found


def _wrong_files(lake: DuckLake, truth: Sequence[dict[str, Rows]]) -> list[str]:
    """Expire all history, delete all files that nothing needs, and compare the storage with the catalog."""
    # The extension's transactions have the times of their workers' clocks, which may be days ahead.
    later = datetime.now(UTC) + timedelta(days=10)
    with lake.connect_metadata(read_only=False) as con:  # those of the killed workers
        if (LEASES.name,) in con.execute("SHOW TABLES").fetchall():
            con.execute(f"DELETE FROM {LEASES.name}")
    for stage in lake.stages():
        if stage.status == "open":
            lake.stage(stage.name).discard()
    expire(lake.config, Retention(later))
    clean_up(lake.config, later)
    delete_orphans(lake.config, later)
    found = _wrong_rows(lake, [lake.snapshots(limit=1)[0].snapshot_id], truth)
    with lake.connect_metadata() as con:
        known = {
            Path(path).name
            for kind in ("data", "delete")
            for (path,) in con.execute(f"SELECT path FROM ducklake_{kind}_file").fetchall()
        }
    stored = {path.name for path in Path(str(lake.config.data_path)).rglob("*") if path.is_file()}
    found += [f"the file {name} is missing" for name in sorted(known - stored)]
    found += [f"the file {name} stays, although nothing needs it" for name in sorted(stored - known)]
    return found


def _difference(what: str, found: Sequence[tuple[Any, ...]], wanted: Rows) -> list[str]:
    there, right = Counter(found), Counter(_tuples(wanted))
    if there == right:
        return []
    return [f"{what} lacks {sorted((right - there).elements())}, and has {sorted((there - right).elements())} too much"]


def _tuples(rows: Rows) -> list[tuple[int, int, int]]:
    return [(key, *row) for key, row in rows.items()]


def _named(operation: Operation) -> str:
    return f"operation {operation.number} ({operation.kind})"
