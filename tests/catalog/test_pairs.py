"""Every ordered pair of writers on one table: the second one is planned before the first one and commits after it.

The table in docs/conflicts.md shows the outcomes. The rows are always checked.
"""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import duckdb
import pytest

from ducklake_orch import DuckLake, errors
from ducklake_orch.engine.fault_points import actions
from tests.support.backends import POSTGRES, SQLITE, catalogs
from tests.support.fault_points import once_at
from tests.support.plan_reader import read_plan
from tests.support.table_operations import OURS, START, THEIRS, Operation, Rows, make_table, plus

# Operations that the engine commits in its own transaction.
ENGINE_ALONE = {"merge", "flush and rewrite", "expire"}


def ordered(rows: Rows) -> list[Any]:
    return sorted((sorted(row.items()) for row in rows), key=repr)


def rows_of(lake: DuckLake) -> list[Any]:
    return ordered(lake.execute("FROM t", max_rows=None).raise_for_error().rows)


def full_rows(lake: DuckLake, rows: Rows) -> list[Any]:
    """Return rows with all current columns of the table."""
    return ordered([{column.name: row.get(column.name) for column in lake.table("t").schema()} for row in rows])


def start(lake: DuckLake) -> None:
    """Create the table of a pair. On MySQL, the engine cannot inline or delete a second time."""
    lake.drop_table("t", if_exists=True)
    make_table(lake, with_engine=lake.config.catalog.type != "mysql")


def check_our_second_write(lake: DuckLake, first: Operation, second: Operation, patch: pytest.MonkeyPatch) -> None:
    start(lake)
    once_at(patch, "files.written", lambda: first.run(lake))
    if first.kind == "drop":
        with pytest.raises(errors.TableDroppedError):
            second.run(lake)
        return
    result = second.run(lake)
    assert "files.written" not in actions
    if first.name == "SET PARTITIONED BY" and second.name == "overwrite_partitions":
        # After replanning, the write replaces an empty partition of the new spec.
        second = replace(second, then=plus({"p": "x", "v": 12}))
    assert rows_of(lake) == full_rows(lake, second.then(first.then(list(START)))), (first, second)
    # The written files still fit, or the write was replanned and wrote new ones.
    assert result.attempts == (2 if first.kind == "layout" and first is not second else 1), (first, second)
    assert read_plan(lake, "t") == sorted((tuple(row.values()) for row in lake.execute("FROM t").rows), key=repr)


@pytest.mark.parametrize("first", OURS, ids=str)
@catalogs()
def test_our_write_after_our_write(lake: DuckLake, first: Operation, monkeypatch: pytest.MonkeyPatch) -> None:
    for second in OURS:
        check_our_second_write(lake, first, second, monkeypatch)
    assert lake.fsck().findings == []


@pytest.mark.parametrize("first", THEIRS, ids=str)
@catalogs(sql_writes=True, quick=[SQLITE])
def test_our_write_after_the_engines_write(lake: DuckLake, first: Operation, monkeypatch: pytest.MonkeyPatch) -> None:
    for second in OURS:
        check_our_second_write(lake, first, second, monkeypatch)
    assert lake.fsck().findings == []


def commit(con: duckdb.DuckDBPyConnection) -> bool:
    """Commit, and return whether the engine refused because of the earlier commit."""
    try:
        con.execute("COMMIT")
    except duckdb.TransactionException as error:
        if not re.search("conflict|locked", str(error), re.IGNORECASE):
            raise
        return True
    return False


@pytest.mark.parametrize("first", OURS, ids=str)
@catalogs(sql_writes=True, shared=True, quick=[POSTGRES])
def test_the_engines_write_after_our_write(lake: DuckLake, first: Operation) -> None:
    """An engine transaction on an unguarded connection begins before our commit and commits after it.

    The engine decides whether it commits. In both cases, no row is lost, duplicated or restored.
    """
    for second in THEIRS:
        if second.name not in ENGINE_ALONE:
            check_second_engine_write(lake, first, second)
    assert lake.fsck().findings == []


def aborts(first: Operation, second: Operation) -> bool:
    """Return whether the engine's transaction must abort after our commit: the second table in docs/conflicts.md."""
    if second.kind == "drop":
        return False
    if first.kind == "layout" or second.name == "flush":
        return True
    if second.kind != "rows":
        return False
    return first.name != "append" or not second.name.startswith("INSERT")


def check_second_engine_write(lake: DuckLake, first: Operation, second: Operation) -> None:
    start(lake)
    with lake.connect() as con, ThreadPoolExecutor(1) as pool:
        con.execute("BEGIN")
        for statement in second.statements:
            con.execute(statement)
        ours = pool.submit(first.run, lake)
        try:
            ours.result(timeout=5)
            orders = [(first, second)]
        except TimeoutError:
            # Our write waits for inlined rows that the other transaction has locked, and then commits after it.
            orders = [(second, first), (first, second)]
        refused = commit(con)
        ours.result(timeout=60)
    # SQLite refuses writes of a transaction whose snapshot is outdated.
    gives_way = lake.config.catalog.type == "sqlite" or aborts(first, second)
    assert refused == (len(orders) == 1 and gives_way), (first, second)
    if second.kind == "drop" and not refused:
        assert lake.exists("t") == (second.name != "DROP")
        return
    allowed = [full_rows(lake, late.then(early.then(list(START)))) for early, late in orders]
    assert rows_of(lake) in ([full_rows(lake, first.then(list(START)))] if refused else allowed), (first, second)
