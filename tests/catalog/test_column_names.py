"""Every verb works on columns with the names of internal columns, in any case."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ducklake_orch import DuckLake, errors
from ducklake_orch.catalog.feed import OWN_COLUMNS
from ducklake_orch.catalog.metadata import ROW_ID, SNAPSHOT_ID
from ducklake_orch.catalog.metadata.reserved_names import RESERVED
from ducklake_orch.engine.quoting import identifier, literal
from tests.support.backends import SQLITE, catalogs
from tests.support.internal_names import ALIASES, NAMES, Table, Value, as_rows, distinct, nested, plain, text
from tests.support.lakes import MakeLake
from tests.support.refusals import refused


def steps(table: Table) -> Iterator[str]:
    """Change a table and its model with every verb."""
    lake, names, set_all = table.lake, table.names, {}
    table.write({n: n for n in range(40)})
    yield "append"
    table.write({n: n for n in range(40, 45)}, inline="auto")
    table.write({n: n for n in range(45, 48)}, inline="auto")
    yield "append few rows"
    assert as_rows(lake.read("t", where=table.holds(7))) == {7: table.rows[7]}
    assert as_rows(lake.read("t", where=table.holds(46))) == {46: table.rows[46]}
    for n in (3, 41):
        lake.delete("t", table.holds(n))
        table.drop(n)
    yield "delete"
    for n in (5, 45):
        set_all = {name: f"{identifier(name)}" for name in names} | {names[0]: table.literal("set", names[0])}
        lake.update("t", set_all, table.holds(n))
        table.rows[n] = (table.value("set", names[0]), *table.row(n)[1:])
    yield "update"
    before, then = lake.snapshots(limit=1)[0].snapshot_id, dict(table.rows)
    table.write({8: "merged", 46: "merged", 60: "new"}, "merge", keys=["id"])
    yield "merge"
    matched = {name: f"coalesce(source.{identifier(name)}, target.{identifier(name)})" for name in names}
    where = f"source.{identifier(names[-1])} <> target.{identifier(names[-1])}"
    table.write({9: "again", 47: "again"}, "merge", keys=["id"], when_matched=matched, matched_condition=where)
    yield "merge by expressions"
    if isinstance(table.value(1, "a"), str):
        table.write({10: 10}, "merge", keys=["id", *names[::20]], when_matched="keep")
        yield "merge by these columns"
    table.write({11: 11}, "replace_where", where=table.holds(11))
    yield "replace_where"
    known = [name for name in names if name.lower() not in OWN_COLUMNS]
    # An update has two rows in the feed, and so has a row that is replaced by an equal one.
    changed = lake.changes("t", from_snapshot=before + 1, columns=["id", *known])
    kinds = [(row["change_type"], row["id"]) for row in changed.select(["change_type", "id"]).to_pylist()]
    both = [(kind, n) for n in (8, 9, 46, 47) for kind in ("update_postimage", "update_preimage")]
    assert sorted(kinds) == sorted([*both, ("insert", 60), ("delete", 11), ("insert", 11)])
    images = changed.filter(pc.equal(changed["change_type"], "update_preimage")).select(["id", *known])
    place = [names.index(name) for name in known]
    assert as_rows(images) == {n: tuple(then[n][column] for column in place) for n in (8, 9, 46, 47)}
    if len(known) < len(names):
        assert "columns=" in refused(errors.ConfigError, lambda: lake.changes("t", from_snapshot=before + 1))
    lake.rollback("t", to_snapshot=before)
    table.rows = then
    yield "rollback"
    folder = Path(str(lake.config.storage.path)).parent  # type: ignore[union-attr]
    pq.write_table(table.arrow({70: 70, 71: 71}), folder / "added.parquet")
    lake.add_files("t", folder / "added.parquet")
    table.rows |= {70: table.row(70), 71: table.row(71)}
    yield "add_files"
    lake.delete("t", "id IN (70, 12)")
    table.drop(70, 12)
    table.write({80: 80}, inline="auto")
    yield "before maintenance"
    policy = {"rewrite": {"delete_threshold": 0.01}, "merge": {"min_files": 2}, "force": True}
    policy |= {"expire": {"older_than": "0s", "retain_last": 1}, "cleanup": {"older_than": "0s"}}
    report = lake.maintain(policy | {"orphans": {"action": "delete", "older_than": "0s"}})
    assert report.status == "ok", report.operations
    yield "maintain"
    table.write({81: 81, 20: "last"}, "merge", keys=["id"])
    lake.delete("t", table.holds(21))
    table.drop(21)
    yield "after maintenance"


def check_every_step(table: Table) -> None:
    for description in steps(table):
        try:
            table.check()
        except AssertionError as error:
            raise AssertionError(f"after {description}") from error
    assert table.lake.fsck(deep=True, storage=True).findings == []


@pytest.mark.parametrize(("case", "value"), [(str.lower, text), (str.upper, nested)])
@catalogs(quick=[SQLITE])
def test_every_verb_supports_columns_with_internal_names(
    make_lake: MakeLake, case: Callable[[str], str], value: Value
) -> None:
    names = distinct([case(name) for name in (NAMES if value is text else NAMES[::12] + ALIASES)])
    kind = "VARCHAR" if value is text else f"STRUCT({', '.join(f'{one} VARCHAR' for one in nested('', ''))})"
    make_table(make_lake, names, kind)
    check_every_step(Table(make_lake(), names, value))


@catalogs()
def test_every_verb_supports_internal_column_names_on_every_catalog(make_lake: MakeLake) -> None:
    names = distinct([name.title() for name in (*NAMES[::16], *ALIASES, *RESERVED, *OWN_COLUMNS)])
    make_table(make_lake, names, "VARCHAR")
    check_every_step(Table(make_lake(), names, text))


def make_table(make_lake: MakeLake, names: Sequence[str], kind: str) -> None:
    """Create a table in a lake without inlining. With inlining, the engine would refuse its column names."""
    columns = ", ".join(f"{identifier(name)} {kind}" for name in names)
    make_lake(data_inlining_row_limit=0).execute(f"CREATE TABLE t (id BIGINT, {columns})").raise_for_error()


@pytest.mark.parametrize("case", [str.lower, str.upper])
@catalogs(quick=[SQLITE], sql_writes=True)
def test_every_verb_supports_internal_column_names_with_inlined_rows(
    make_lake: MakeLake, case: Callable[[str], str]
) -> None:
    excluded = {*RESERVED, "rowid", "ctid", "xmin", "tableoid"}
    names = distinct([case(name) for name in NAMES if name not in excluded and len(name) < 64])
    lake = make_lake()
    lake.write(Table(lake, names, text).arrow({0: 0}).slice(0, 0), "t", mode="error")
    assert lake.write(Table(lake, names, text).arrow({0: 0}), "t", mode="append", inline="auto").files_added == 0
    lake.truncate("t")
    check_every_step(Table(lake, names, text))


@pytest.mark.parametrize("name", ["_ducklake_internal_ROW_ID", "_ducklake_internal_snapshot_id", SNAPSHOT_ID.upper()])
def test_a_column_name_that_corrupts_the_engines_files_is_refused(tmp_path: Path, name: str) -> None:
    lake, data = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0), pa.table({"id": [1], name: ["a"]})
    refused(errors.DataError, lambda: lake.write(data, "new", mode="append"), name, "Rename")
    lake.write(pa.table({"id": [0]}), "t", mode="append")
    refused(errors.DataError, lambda: lake.write(data, "t", mode="append", schema_evolution="add"), name, "Rename")


@pytest.mark.parametrize(
    ("name", "commands", "query"),
    [
        (
            ROW_ID,
            ["DELETE FROM t WHERE id = 3", "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)"],
            "SELECT rowid FROM t",
        ),
        (SNAPSHOT_ID, ["CALL ducklake_merge_adjacent_files('lake', 't')"], "FROM t AT (VERSION => 2)"),
    ],
)
def test_the_engine_corrupts_tables_with_such_a_column_name(
    tmp_path: Path, name: str, commands: list[str], query: str
) -> None:
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)
    insert = "INSERT INTO t SELECT range, 'a' FROM range(9)"
    for sql in (f"CREATE TABLE t (id BIGINT, {name} VARCHAR)", insert, insert, *commands):
        lake.execute(sql.replace("'lake'", literal(lake.config.alias)), force=True).raise_for_error()
    with plain(lake) as ask, pytest.raises(duckdb.Error, match=r"row id could not be read|not present in file"):
        ask(query)


@pytest.mark.parametrize("name", ["row_id", "Begin_Snapshot", "END_SNAPSHOT"])
@catalogs()
def test_a_column_name_that_the_engine_refuses_to_inline_is_refused(make_lake: MakeLake, name: str) -> None:
    lake, data = make_lake(), pa.table({"id": [1], name: ["a"]})
    word = "data_inlining_row_limit"
    create = f"CREATE TABLE t (id INTEGER, {identifier(name)} VARCHAR)"
    refused(errors.StatementError, lambda: lake.execute(create).raise_for_error(), name, word)
    lake.write(pa.table({"id": [0]}), "t", mode="error")
    for inline in ("auto", "never"):
        refused(errors.DataError, partial(lake.write, data, "new", mode="append", inline=inline), name, word)
        more: dict[str, Any] = {"schema_evolution": "add", "inline": inline}
        refused(errors.DataError, partial(lake.write, data, "t", mode="append", **more), name, word)
    merge: dict[str, Any] = {"mode": "merge", "keys": ["id"], "schema_evolution": "add"}
    refused(errors.DataError, lambda: lake.write(data, "t", **merge), name, word)
    refused(errors.StatementError, lambda: lake.create_table("new", {"id": "INTEGER", name: "VARCHAR"}), name, word)
    lake.set_option(word, 0)
    lake.write(data, "new", mode="append", inline="auto")
    lake.write(data, "t", **merge)
    assert lake.read("t").to_pydict() == {"id": [0, 1], name: [None, "a"]}
    with plain(lake) as query:
        assert query(f"SELECT {identifier(name)} FROM new") == [("a",)]


@catalogs(sql_writes=True)
def test_sqlite_columns_named_rowid_do_not_corrupt_row_lookups(lake: DuckLake) -> None:
    lake.execute("CREATE TABLE t (id BIGINT, RowId BIGINT); INSERT INTO t VALUES (1, 1), (2, 1), (3, NULL), (4, 3)")
    lake.delete("t", "id = 2")
    lake.update("t", {"rowid": "7"}, "id = 3")
    lake.write(pa.table({"id": [5], "rowid": [1]}), "t", mode="append", inline="auto")
    with plain(lake) as query:
        assert sorted(query("SELECT * FROM t")) == [(1, 1), (3, 7), (4, 3), (5, 1)]
    assert lake.maintain({"flush": {"min_rows": 1}}).status == "ok"
    with plain(lake) as query:
        assert sorted(query("SELECT * FROM t")) == [(1, 1), (3, 7), (4, 3), (5, 1)]


@pytest.mark.parametrize("name", ["file_row_number", "FILENAME", "rowid", "_metadata", "year", "a=b/c", "É", " ", "t"])
@catalogs(quick=[SQLITE])
def test_partition_keys_may_have_internal_names(lake: DuckLake, name: str) -> None:
    quoted = identifier(name)
    data = pa.table({"id": range(6), name: ["x", "x", "y", "y", "z", None], "é": [1, 1, 2, 2, 3, 3]})
    lake.write(data, "t", mode="append", partition_by=[quoted, f"bucket(2, {quoted})"])
    lake.write(pa.table({"id": [7], name: ["y"], "é": [4]}), "t", mode="overwrite_partitions")
    lake.write(pa.table({"id": [8, 9], name: ["z", "w"], "é": [5, 5]}), "t", mode="append", inline="auto")
    lake.delete("t", f"{quoted} = 'x' AND id = 0")
    assert lake.maintain({"rewrite": {"delete_threshold": 0.01}, "merge": {"min_files": 2}}).status == "ok"
    kept = [(1, "x", 1), (4, "z", 3), (5, None, 3), (7, "y", 4), (8, "z", 5), (9, "w", 5)]
    with plain(lake) as query:
        assert sorted(query("SELECT * FROM t")) == kept
        assert query(f"SELECT id FROM t WHERE {quoted} = 'w'") == [(9,)]
    assert sorted(zip(*lake.read("t").to_pydict().values(), strict=True)) == kept
    assert lake.fsck(deep=True, storage=True).findings == []


@catalogs(quick=[SQLITE])
def test_invalid_column_names_are_refused(lake: DuckLake) -> None:
    for name in ("", "__duckdb_field_id"):
        refused(errors.DataError, partial(lake.write, pa.table({"id": [1], name: [2]}), "t", mode="append"))
    fields = pa.array([{"__DuckDB_field_id": 2}])
    refused(errors.DataError, lambda: lake.write(pa.table({"s": fields}), "t", mode="append"), "__DuckDB_field_id")
    refused(errors.DataError, lambda: lake.write(pa.table({"a": [1], "A": [2]}), "t", mode="append"), "several")
    assert lake.tables() == []
