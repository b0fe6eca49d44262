"""Encrypted lakes: every verb writes encrypted files, each readable with the key in the catalog only."""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from ducklake_orch import CommitInfo, DuckLake
from ducklake_orch.errors import DuckLakeOrchError, UnsupportedStatementError
from tests.support.backends import SQLITE, catalogs, on_sqlite
from tests.support.lakes import MakeLake
from tests.support.readers_of_the_past import Past

COMPACT = {
    "merge": {"min_files": 2, "settled_after": 0},
    "rewrite": {"delete_threshold": 0.01},
    "layout": {"max_depth": 1},
}


def rows(*keys: int, **more: Any) -> pa.Table:
    return pa.table({"k": list(keys), "p": [key % 3 for key in keys], "s": [f"secret {key}" for key in keys]} | more)


def check_files(lake: DuckLake) -> None:
    """Check that every file of the lake is encrypted, and that none of their texts can be read."""
    metadata = "__ducklake_metadata_lake"
    kinds = [f"SELECT path, encryption_key FROM {metadata}.ducklake_{kind}_file" for kind in ("data", "delete")]
    with lake.connect() as con:
        keys = dict(con.execute(" UNION ALL ".join(kinds)).fetchall())
    assert keys
    assert all(keys.values())
    for path in Path(lake.config.data_path or "").rglob("*.parquet"):
        with duckdb.connect() as con, pytest.raises(duckdb.Error, match="encrypted"):
            con.read_parquet(str(path))
        assert b"secret" not in path.read_bytes()


def check(lake: DuckLake, *keys: int) -> None:
    """Check the rows as this package and the extension read them, and the lake itself."""
    assert sorted(lake.read("t").column("k").to_pylist()) == sorted(keys)
    with lake.connect() as con:
        assert con.execute("SELECT list(k ORDER BY k), list(s ORDER BY k) FROM t").fetchall() == [
            (sorted(keys), [f"secret {key}" for key in sorted(keys)])
        ]
    assert lake.fsck(deep=True, storage=True).counts == {}


@catalogs(quick=[SQLITE])
def test_all_verbs_write_encrypted_files(make_lake: MakeLake) -> None:
    lake = make_lake(encrypted=True, data_inlining_row_limit=0)
    lake.create_table("t", {"k": "BIGINT", "p": "BIGINT", "s": "VARCHAR"}, partition_by=["p"], cluster_by=["k"])
    lake.write(rows(*range(30)), "t", mode="append")
    lake.write(rows(*range(30, 60)), "t", mode="append")
    lake.delete("t", "k IN (4, 35)")
    lake.update("t", {"s": "'secret ' || (k + 100)", "k": "k + 100"}, "k IN (5, 7)")
    lake.merge(rows(105, 8, 200), "t", keys=["k"])
    before = lake.merge(rows(300), "t", keys=["k"]).snapshot_id
    left = [*(set(range(60)) - {4, 35, 5, 7}), 105, 107, 200]
    check(lake, *left, 300)
    lake.write(rows(3, 6), "t", mode="overwrite_partitions")
    lake.truncate("t")
    check_files(lake)
    lake.rollback("t", to_snapshot=before)
    check(lake, *left, 300)
    past = Past(lake, first=2)
    for _ in range(2):
        lake.maintain(COMPACT, ["rewrite", "merge", "layout"]).raise_for_error()
        past.check()
        check_files(lake)
    assert [part.files for part in lake.table("t").partitions()] == [1, 1, 1]
    check(lake, *left, 300)


@catalogs(quick=[SQLITE])
def test_inlined_rows_and_deletions_are_flushed_into_encrypted_files(make_lake: MakeLake) -> None:
    lake = make_lake(encrypted=True, data_inlining_row_limit=10)
    lake.write(rows(*range(20)), "t", mode="append", partition_by=["p"])
    lake.write(rows(20, 21, 22), "t", mode="append")
    lake.delete("t", "k IN (1, 21)")
    past = Past(lake)
    lake.maintain(operations=["flush"]).raise_for_error()
    past.check()
    check_files(lake)
    check(lake, *(set(range(23)) - {1, 21}))
    assert [step.action for step in lake.plan_maintenance(operations=["flush"]).operations] == ["skip"]


@on_sqlite
def test_transactions_and_stages_write_encrypted_files(make_lake: MakeLake) -> None:
    lake = make_lake(encrypted=True, data_inlining_row_limit=0)
    lake.write(rows(1, 2, 3), "t", mode="append")
    with lake.transaction() as tx:
        tx.write(rows(4, 5), "t", mode="append")
        tx.delete("t", "k IN (1, 4)")
        tx.alter_table("t", rename_columns={"s": "text"})
        tx.alter_table("t", rename_columns={"p": "s"})
        tx.alter_table("t", rename_columns={"text": "p"})
    assert sorted(lake.read("t").select(["k", "p", "s"]).to_pylist(), key=str) == [
        {"k": 2, "p": "secret 2", "s": 2},
        {"k": 3, "p": "secret 3", "s": 0},
        {"k": 5, "p": "secret 5", "s": 2},
    ]
    stage = lake.stage("s")
    stage.write(rows(6), "u", mode="append")
    stage.write(rows(7), "u", mode="append")
    stage.delete("u", "k = 6")
    lake.stage("s").publish()
    assert lake.read("u").column("k").to_pylist() == [7]
    check_files(lake)
    assert lake.fsck(deep=True, storage=True).counts == {}


@on_sqlite
def test_a_process_that_does_not_know_of_the_encryption_encrypts_too(make_lake: MakeLake, tmp_path: Path) -> None:
    make_lake(encrypted=True, data_inlining_row_limit=0).write(rows(1), "t", mode="append")
    lake = make_lake(data_inlining_row_limit=0)
    lake.write(rows(2), "t", mode="append")
    check_files(lake)
    check(lake, 1, 2)


@on_sqlite
@pytest.mark.parametrize(
    "fails",
    [
        lambda lake: lake.write(pa.table({"k": ["x"]}), "t", mode="append"),
        lambda lake: lake.delete("t", "CAST(s AS BIGINT) = 1"),
        lambda lake: lake.update("t", {"k": "CAST(s AS BIGINT)"}),
    ],
)
def test_errors_do_not_show_keys(make_lake: MakeLake, fails: Callable[[DuckLake], Any]) -> None:
    lake = make_lake(encrypted=True, data_inlining_row_limit=0)
    lake.write(rows(1), "t", mode="append", commit=CommitInfo(author="a"))
    with lake.connect() as con:
        [(key,)] = con.execute("SELECT encryption_key FROM __ducklake_metadata_lake.ducklake_data_file").fetchall()
    with pytest.raises(DuckLakeOrchError) as failure:
        fails(lake)
    shown = f"{failure.value!r} {failure.value.__cause__!r} {failure.value.__context__!r}"
    assert "from_base64" not in shown
    assert key not in shown


ALTERED = {
    "exchanged": ["RENAME a TO x", "RENAME b TO a", "RENAME x TO b"],
    "dropped and added": ["DROP a", "ADD COLUMN a BIGINT"],
    "renamed and added": ["RENAME a TO c", "ADD COLUMN a BIGINT"],
}


@on_sqlite
@pytest.mark.parametrize("alters", ALTERED.values(), ids=ALTERED)
@pytest.mark.parametrize("together", [True, False])
def test_columns_that_another_program_altered_keep_their_values(
    make_lake: MakeLake, alters: list[str], together: bool
) -> None:
    lake = make_lake(encrypted=True, data_inlining_row_limit=0)
    write = ["CREATE TABLE t (k BIGINT, a BIGINT, b BIGINT)", "INSERT INTO t SELECT range, 10, 20 FROM range(100)"]
    statements = [*write, *(f"ALTER TABLE t {alter}" for alter in alters)]
    lake.execute(statements, atomic=together).raise_for_error()
    lake.execute("INSERT INTO t (k) VALUES (100)").raise_for_error()

    def others() -> list[Any]:
        return lake.execute("SELECT * EXCLUDE (k) FROM t ORDER BY ALL").rows

    wanted = others()
    with suppress(UnsupportedStatementError) if together else nullcontext():
        lake.update("t", {"k": "k + 1000"}, "k = 1")
        lake.maintain(COMPACT, ["rewrite", "merge"]).raise_for_error()
    assert others() == wanted
    assert len(wanted) == 101


@on_sqlite
def test_columns_with_the_engines_own_names_keep_their_values(make_lake: MakeLake) -> None:
    lake = make_lake(encrypted=True, data_inlining_row_limit=0)
    lake.execute(
        [
            "CREATE TABLE t (k BIGINT, _ducklake_internal_row_id BIGINT, _ducklake_internal_snapshot_id BIGINT)",
            "INSERT INTO t SELECT range, 77, 88 FROM range(100)",
        ]
    ).raise_for_error()
    lake.update("t", {"k": "k + 1000"}, "k = 1")
    lake.maintain(COMPACT, ["rewrite", "merge"]).raise_for_error()
    lake.delete("t", "k = 2")
    own = "_ducklake_internal_row_id AS r, _ducklake_internal_snapshot_id AS s"
    assert lake.execute(f"SELECT DISTINCT {own}, count(*) AS n FROM t GROUP BY ALL").rows == [
        {"r": 77, "s": 88, "n": 99}
    ]


@on_sqlite
def test_a_key_in_an_excerpt_of_sql_is_masked(make_lake: MakeLake) -> None:
    scrub = make_lake().config.scrubber
    tail = "LINE 1: ...9/6gSNa9w0b64E56v3Q==')}) UNION ALL BY NAME FROM read_parquet("
    head = "LINE 1: ... encryption_config = {footer_key_value: from_base64('ukN9/6gSN"
    assert "Q==" not in scrub(tail)
    assert "ukN9" not in scrub(head)
