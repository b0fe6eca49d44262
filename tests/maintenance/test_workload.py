"""With `workload = true`, reads are counted by the columns of their conditions; maintenance uses the counts."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.catalog.scan import reads_seen, write_reads
from ducklake_orch.engine.session import open_session
from tests.support.backends import catalogs, on_sqlite
from tests.support.lakes import MakeLake

FILES = 8


@pytest.fixture
def lake(make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch) -> DuckLake:
    """A lake that counts each read at once, with a table of files that each have all values of `a`."""
    monkeypatch.setattr(reads_seen, "_WRITE_EVERY_S", -1.0)
    monkeypatch.setattr(reads_seen, "_PLAN_EVERY_S", 0.0)
    counting = make_lake("lake", workload=True)
    for number in range(FILES):
        rows = f"SELECT range AS id, range % 100 AS a, range % 7 AS b FROM range({number * 200}, {number * 200 + 200})"
        counting.write(duckdb.sql(rows).to_arrow_table(), "t", mode="append")
    return counting


def counts(lake: DuckLake) -> dict[tuple[str | None, str | None], tuple[int, float | None, float | None]]:
    write_reads(lake.config, now=True)
    return {(entry.column, entry.condition): (entry.reads, entry.files, entry.opened) for entry in lake.workload()}


@catalogs()
def test_reads_are_counted_by_the_columns_of_their_conditions(lake: DuckLake) -> None:
    lake.read("t")
    lake.read("t", where="a = 17")
    lake.read("t", where="A IN (1, 2) AND id BETWEEN 5 AND 9")
    list(lake.read_batches("t", where="NOT (a = 3 OR id > 10) AND b + 1 = 2"))
    assert counts(lake) == {
        (None, None): (4, 8.0, (8 + 1 + 1) / 3),
        ("a", "equal"): (3, 8.0, (8 + 1 + 1) / 3),
        ("id", "range"): (2, 8.0, 1.0),
        ("b", "other"): (1, 8.0, 1.0),
    }
    assert str(lake.workload()[0]) == "main.t: 4 reads, 3.3 of 8.0 files opened"


@on_sqlite
def test_values_of_conditions_are_not_kept(lake: DuckLake) -> None:
    lake.read("t", where="a = 424242 OR b < 919191")
    with lake.connect() as con:
        stored = str(con.execute("FROM __ducklake_metadata_lake.ducklake_orch_reads").fetchall())
    assert "424242" not in stored
    assert "919191" not in stored


@on_sqlite
def test_reads_are_not_counted_by_default(make_lake: MakeLake) -> None:
    lake = make_lake("lake")
    lake.write([{"a": 1}], "t", mode="append")
    lake.read("t", where="a = 1")
    assert lake.workload() == []
    with lake.connect() as con:
        tables = con.execute("SELECT table_name FROM duckdb_tables()").fetchall()
    assert ("ducklake_orch_reads",) not in tables


@on_sqlite
def test_counts_wait_while_a_writer_holds_the_lake(lake: DuckLake) -> None:
    lake.read("t", where="a = 1")
    with (
        open_session(lake.config) as session,
        session.queue("a long merge"),
        ThreadPoolExecutor(1) as another,
    ):
        assert another.submit(lambda: lake.read("t", where="a = 1").num_rows).result() == 16
        assert [entry.reads for entry in lake.workload() if entry.column] == [1]
    lake.read("t", where="a = 1")
    assert counts(lake)["a", "equal"][0] == 3


@on_sqlite
def test_a_process_writes_its_counts_at_its_end(make_lake: MakeLake, tmp_path: Path) -> None:
    lake = make_lake("lake", workload=True)
    lake.write([{"a": 1}], "t", mode="append")
    (tmp_path / "config.json").write_text(lake.config.model_dump_json())
    script = (
        "import pathlib, sys; from ducklake_orch import DuckLake, LakeConfig;"
        " lake = DuckLake(LakeConfig.model_validate_json(pathlib.Path(sys.argv[1]).read_text()));"
        " lake.read('t', where='a = 1'); lake.read('t', where='a = 1')"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "config.json")], check=True)
    assert counts(lake)["a", "equal"] == (2, 1.0, 1.0)


@on_sqlite
def test_read_only_lakes_and_views_are_read_without_counts(lake: DuckLake) -> None:
    lake.execute("CREATE VIEW v AS FROM t").raise_for_error()
    assert lake.read("v", where="a = 1").num_rows == 16
    only = DuckLake(lake.config.model_copy(update={"read_only": True}))
    assert only.read("t", where="a = 1").num_rows == 16
    assert [entry for entry in lake.workload() if entry.column] == []


@on_sqlite
def test_tables_that_are_read_often_are_maintained_first(lake: DuckLake) -> None:
    for number in range(FILES):
        lake.write([{"x": number}], "a_table", mode="append")
    order = [step.table for step in lake.plan_maintenance(operations=["merge"]).operations]
    assert order[0] == "main.a_table"
    for _ in range(50):
        lake.read("t")
    [first, *_] = lake.plan_maintenance(operations=["merge"]).operations
    assert first.table == "main.t"
    assert first.reads == pytest.approx(50 / 7 + 1)


@on_sqlite
def test_keys_are_proposed_and_used_where_the_policy_says_so(lake: DuckLake) -> None:
    def plan(**layout: Any) -> Any:
        policy = {"layout": layout, "merge": {"enabled": False, "target_file_size": "1 KiB"}}
        [step] = lake.plan_maintenance(policy, ["layout"]).operations
        return step

    for value in range(12):
        lake.read("t", where=f"a = {value} AND b % 7 = 3")
        lake.read("t", where=f"id = {value}")
    assert plan().reason.endswith("; clustering by a would let reads open fewer files")
    assert plan(cluster="auto").reason.startswith("8.0 files hold a value of a; 8 files become")
    policy = {"layout": {"cluster": "auto"}, "merge": {"enabled": False, "target_file_size": "1 KiB"}}
    lake.maintain(policy, ["layout"]).raise_for_error()
    assert [option.value for option in lake.options() if option.name == "cluster_by"] == ['["a"]']
    for value in range(99):
        lake.read("t", where=f"b = {value % 7}")
    assert "hold a value of a" in plan(cluster="auto").reason


def test_counting_creates_no_lake(tmp_path: Path) -> None:
    script = (
        "import shutil, sys; from ducklake_orch import DuckLake; lake = DuckLake.local(sys.argv[1], workload=True);"
        " lake.write([{'a': 1}], 't', mode='append'); lake.read('t', where='a = 1');"
        " tx = lake.transaction().__enter__(); tx.read('t', where='a = 1'); tx.__exit__(None, None, None);"
        " [shutil.rmtree(path) if path.is_dir() else path.unlink()"
        "  for path in __import__('pathlib').Path(sys.argv[1]).parent.iterdir()]"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary")}
    (tmp_path / "temporary").mkdir()
    (tmp_path / "lakes").mkdir()
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "lakes" / "lake")], check=True, env=environment)
    assert list((tmp_path / "lakes").iterdir()) == []
    assert not list((tmp_path / "temporary").glob("**/*.sqlite"))


@on_sqlite
def test_a_forked_process_does_not_write_the_counts_of_its_parent(lake: DuckLake, monkeypatch: Any) -> None:
    monkeypatch.setattr(reads_seen, "_WRITE_EVERY_S", 60.0)
    write_reads(lake.config, now=True)
    lake.read("t", where="a = 1")
    child = os.fork()
    if child == 0:
        write_reads(lake.config, now=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert lake.workload() == []
    assert counts(lake)["a", "equal"][0] == 1


@on_sqlite
def test_a_catalog_that_refuses_the_counts_is_read_all_the_same(lake: DuckLake) -> None:
    with lake.connect() as con:
        con.execute("CREATE TABLE __ducklake_metadata_lake.ducklake_orch_reads (other INTEGER)")
    for _ in range(2):
        assert lake.read("t", where="a = 1").num_rows == 16
