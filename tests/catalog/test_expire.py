"""Expiry deletes the same catalog rows as the engine's expiry, and nothing that a retained snapshot needs."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from ducklake_orch import CommitInfo, DuckLake
from ducklake_orch.catalog.lifecycle import Retention, expire, plan_expire
from ducklake_orch.catalog.lifecycle.expiry import Expiry
from ducklake_orch.catalog.search import planning
from ducklake_orch.errors import ReadOnlyError
from tests.catalog.fsck.damage import damage, move_to_end
from tests.support.backends import MYSQL, SQLITE, catalogs, on_sqlite
from tests.support.fault_points import dies_at, lose_the_answer, once_at
from tests.support.lakes import MakeLake
from tests.support.metadata_dump import dump, readable, restore
from tests.support.row_history import newest

LATER = datetime.now(UTC) + timedelta(days=1)
NOTHING = Expiry(
    snapshots=(),
    kept=1,
    needed_by_writes=0,
    needed_by=None,
    tagged=0,
    needed_by_tables=0,
    tables=(),
    data_files=0,
    delete_files=0,
    rows=0,
    bytes=0,
    paths=(),
)
FLUSH = "CALL ducklake_flush_inlined_data('lake')"
# Statements that create, change and drop every kind of object in the catalog.
STEPS = [
    "CREATE SCHEMA s",
    "CREATE TABLE s.gone (a INTEGER, b STRUCT(x INTEGER))",
    "INSERT INTO s.gone SELECT range, {'x': 1} FROM range(50)",
    "COMMENT ON TABLE s.gone IS 'x'",
    "COMMENT ON COLUMN s.gone.a IS 'y'",
    "ALTER TABLE s.gone SET PARTITIONED BY (a)",
    "ALTER TABLE s.gone SET SORTED BY (a)",
    "INSERT INTO s.gone SELECT range % 3, {'x': 1} FROM range(50)",
    "INSERT INTO s.gone VALUES (1, {'x': 3})",
    "DELETE FROM s.gone WHERE a = 7",
    "CREATE VIEW v AS SELECT 1",
    "CREATE MACRO m(a) AS a + 1",
    "CREATE TABLE t (a INTEGER, b VARCHAR)",
    "INSERT INTO t SELECT range, 'x' FROM range(100)",
    "INSERT INTO t VALUES (1000, 'i'), (1001, 'j')",
    "DELETE FROM t WHERE a < 20",
    "DELETE FROM t WHERE a IN (25, 1000)",
    "ALTER TABLE t ADD COLUMN c INTEGER",
    "UPDATE t SET b = 'z' WHERE a > 90",
    "DROP VIEW v",
    "CREATE OR REPLACE MACRO m(a) AS a + 2",
    "DROP MACRO m",
    "DROP TABLE s.gone",
    "DROP SCHEMA s",
    "ALTER TABLE t RENAME TO u",
    "ALTER TABLE u DROP COLUMN b",
    "ALTER TABLE u SET PARTITIONED BY (a)",
    "ALTER TABLE u RESET PARTITIONED BY",
    "COMMENT ON TABLE u IS 'one'",
    "COMMENT ON TABLE u IS 'two'",
    FLUSH,
    "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.01)",
    "DELETE FROM u WHERE a = 50",
    "INSERT INTO u SELECT range, 1 FROM range(40)",
    FLUSH,
    "DELETE FROM u",
    "INSERT INTO u VALUES (1, 1)",
]


def run(lake: DuckLake, *statements: str) -> None:
    lake.execute(list(statements), force=True).raise_for_error()


def plan(lake: DuckLake, retention: Retention) -> Expiry:
    with planning(lake.config, "Planning") as metadata:
        return plan_expire(metadata, retention)


def rows(*values: int) -> pa.Table:
    return pa.table({"a": pa.array(values, pa.int64())})


def ids(lake: DuckLake) -> list[int]:
    return sorted(snapshot.snapshot_id for snapshot in lake.snapshots())


@catalogs(sql_writes=True)
def test_expiry_leaves_the_same_catalog_rows_as_the_engines_expiry(lake: DuckLake) -> None:
    run(lake, *STEPS)
    before, last = dump(lake), newest(lake)
    rng = random.Random(7)
    choices: list[Sequence[int]] = [range(last), range(20)]
    choices += [sorted(rng.sample(range(last), size)) for size in (15, 30)]
    for versions in choices:
        restore(lake, before)
        run(lake, f"CALL ducklake_expire_snapshots('lake', versions => {list(versions)})")
        theirs = readable(dump(lake))
        restore(lake, before)
        done = expire(lake.config, Retention(LATER), only=versions)
        assert done.snapshots == tuple(versions)
        ours = readable(dump(lake))
        assert ours.keys() == theirs.keys()
        for name in ours:
            assert ours[name] == theirs[name], f"{name}, of {versions}"


@catalogs()
def test_expiry_keeps_the_rows_of_every_retained_snapshot(lake: DuckLake) -> None:
    rng = random.Random(3)
    states: dict[int, list[int]] = {}
    for number in range(12):
        match number % 4:
            case 0:
                lake.write(rows(number, number + 100), "t", mode="append")
            case 1:
                lake.write(rows(*range(number, number + 3)), "t", mode="append", inline="auto")
            case 2:
                lake.delete("t", f"a % 5 = {number % 5}")
            case 3:
                lake.write(rows(number), "t", mode="overwrite")
        states[newest(lake)] = sorted(lake.read("t").column("a").to_pylist())
    for _ in range(2):
        chosen = rng.sample(ids(lake)[:-1], 4)
        done = expire(lake.config, Retention(LATER), only=chosen)
        assert set(done.snapshots) == set(chosen)
        for at in set(ids(lake)) & states.keys():
            assert sorted(lake.read("t", snapshot=at).column("a").to_pylist()) == states[at]
        assert lake.fsck().counts == {}
    expire(lake.config, Retention(LATER))
    assert ids(lake) == [newest(lake)]
    assert sorted(lake.read("t").column("a").to_pylist()) == states[newest(lake)]
    assert lake.fsck(deep=True, storage=True).counts == {}


@catalogs()
def test_an_expiry_plan_lists_the_snapshots_and_changes_nothing(lake: DuckLake) -> None:
    for number in range(3):
        lake.write(rows(*range(number, number + 5)), "t", mode="overwrite")
    lake.delete("t", "a = 3")
    before, retention = dump(lake), Retention(LATER)
    planned = plan(lake, retention)
    assert dump(lake) == before
    assert (planned.data_files, planned.delete_files, planned.rows, planned.kept) == (2, 0, 10, 1)
    assert len(planned.paths) == 2
    assert planned.bytes > 0
    assert expire(lake.config, retention) == planned
    assert "parquet" not in repr(planned), "the paths of all files would be a long line"
    assert plan(lake, retention) == NOTHING
    assert expire(lake.config, retention) == NOTHING


@on_sqlite
def test_an_expiry_lists_data_files_and_then_delete_files_each_in_the_order_of_their_ids(lake: DuckLake) -> None:
    for number in range(2):
        lake.write(rows(*range(number, number + 50)), "t", mode="append")
    lake.delete("t", "a = 40")
    lake.write(rows(), "t", mode="overwrite")
    listed = []
    for kind in ("data", "delete"):
        table = f"ducklake_{kind}_file"
        move_to_end(lake, table, f"{kind}_file_id = (SELECT min({kind}_file_id) FROM {table})")
        with lake.connect_metadata() as con:
            listed += con.execute(f"SELECT path FROM {table} ORDER BY {kind}_file_id").fetchall()
    paths = plan(lake, Retention(LATER)).paths
    assert [path.rpartition("/")[2] for path in paths] == [row[0] for row in listed]
    assert len(paths) == 4


@catalogs(quick=[SQLITE])
def test_an_expiry_whose_answer_is_lost_is_repeated(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        lake.write(rows(number), "t", mode="overwrite")
    once_at(monkeypatch, "commit.after", lose_the_answer)
    expire(lake.config, Retention(LATER))
    assert ids(lake) == [3]
    assert lake.fsck(deep=True).findings == []


@catalogs()
def test_expiry_removes_a_dropped_table_with_its_inlined_rows(lake: DuckLake) -> None:
    lake.write(rows(1, 2), "t", mode="append", inline="auto")
    lake.drop_table("t")
    lake.write(rows(1), "other", mode="append")
    done = expire(lake.config, Retention(LATER))
    assert len(done.tables) == 1
    catalog = dump(lake)
    assert [row["table_id"] for row in catalog["ducklake_table"].to_pylist()] == [done.tables[0] + 1]
    assert not [name for name in catalog if name.startswith(f"ducklake_inlined_data_{done.tables[0]}_")]
    assert lake.fsck().counts == {}


@on_sqlite
def test_expiry_removes_a_delete_file_that_ended_before_its_data_file(lake: DuckLake) -> None:
    """So did delete files of DuckLake 0.3: each deletion in a data file ended the delete file before it."""
    lake.write(rows(*range(20)), "t", mode="append")
    lake.set_option("data_inlining_row_limit", 0)
    run(lake, "DELETE FROM t WHERE a = 1")
    damage(lake, f"UPDATE ducklake_delete_file SET end_snapshot = {newest(lake)}")
    with lake.connect_metadata() as con:
        ((path, size),) = con.execute("SELECT path, file_size_bytes FROM ducklake_delete_file").fetchall()
    done = expire(lake.config, Retention(LATER))
    assert (done.data_files, done.delete_files, done.rows, done.bytes) == (0, 1, 0, size)
    assert [removed.rpartition("/")[2] for removed in done.paths] == [path]


@on_sqlite
def test_expiry_removes_the_files_of_a_dropped_table_even_if_they_have_not_ended(lake: DuckLake) -> None:
    lake.write(rows(1), "t", mode="append")
    lake.drop_table("t")
    lake.write(rows(1), "other", mode="append")
    damage(lake, "UPDATE ducklake_data_file SET end_snapshot = NULL")
    done = expire(lake.config, Retention(LATER))
    assert (len(done.tables), done.data_files, done.rows) == (1, 1, 1)
    assert lake.fsck(deep=True, storage=True).counts == {}


@on_sqlite
def test_a_snapshot_without_a_record_of_its_changes_expires(lake: DuckLake) -> None:
    for number in range(3):
        lake.write(rows(number), "t", mode="append")
    damage(lake, "DELETE FROM ducklake_snapshot_changes WHERE snapshot_id = 1")
    assert expire(lake.config, Retention(LATER, keep=("release *",))).snapshots == (0, 1, 2)


@catalogs(quick=[SQLITE])
def test_the_retention_policy_selects_the_retained_snapshots(lake: DuckLake) -> None:
    for number, (author, message) in enumerate([("ann", "release 1"), ("bob", None), ("bob", "x"), (None, None)]):
        lake.write(rows(number), "t", mode="append", commit=CommitInfo(author=author, message=message))
    assert ids(lake) == [0, 1, 2, 3, 4]
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    kept = {
        Retention(long_ago): [0, 1, 2, 3, 4],
        Retention(LATER): [4],
        Retention(LATER, retain_last=0): [4],
        Retention(LATER, retain_last=3): [2, 3, 4],
        Retention(LATER, retain_last=30): [0, 1, 2, 3, 4],
        Retention(LATER, keep=("release *",)): [1, 4],
        Retention(LATER, keep=("b?b", "none")): [2, 3, 4],
    }
    for retention, wanted in kept.items():
        assert sorted({0, 1, 2, 3, 4} - set(plan(lake, retention).snapshots)) == wanted, str(retention)


@catalogs()
def test_the_age_of_a_snapshot_is_counted_from_its_commit_time(lake: DuckLake) -> None:
    lake.write(rows(1), "t", mode="append")
    now, minutes = datetime.now(UTC), timedelta(minutes=2)
    assert plan(lake, Retention(now - minutes)).snapshots == ()
    assert plan(lake, Retention(now + minutes)).snapshots == (0,)


@catalogs(quick=[SQLITE])
def test_only_planned_snapshots_expire(lake: DuckLake) -> None:
    lake.write(rows(1), "t", mode="append")
    planned = plan(lake, Retention(LATER))
    lake.write(rows(2), "t", mode="append")
    assert expire(lake.config, Retention(LATER), only=planned.snapshots).snapshots == planned.snapshots == (0,)
    assert ids(lake) == [1, 2]


@catalogs(quick=[SQLITE, MYSQL])
def test_an_expiry_killed_at_any_statement_is_completed_by_the_next(lake: DuckLake) -> None:
    for number in range(4):
        lake.write(rows(number), "t", mode="overwrite")
    lake.write(rows(1), "gone", mode="append", inline="auto")
    lake.drop_table("gone")
    died = 0
    for point in ["statement.1", "statement.4", "statement.9", "statement.20", "commit.before", "commit.after"]:
        if not dies_at(point, lambda: expire(lake.config, Retention(LATER))):
            continue
        died += 1
        assert lake.read("t").column("a").to_pylist() == [3]
        assert lake.fsck().ok
    assert died >= 4  # PostgreSQL gets most statements together
    expire(lake.config, Retention(LATER))
    assert ids(lake) == [newest(lake)]
    assert lake.fsck(deep=True, storage=True).counts == {}


@catalogs()
def test_a_table_can_be_read_at_any_time_of_its_own_retention(make_lake: MakeLake) -> None:
    """Random changes of three tables at known times; two of them have a longer history."""
    lake, rng = make_lake("lake", data_inlining_row_limit=0), random.Random(5)
    start = datetime(2024, 1, 1, tzinfo=UTC)
    names = ("main.long", "main.longer", "main.short")
    states: list[tuple[datetime, dict[str, list[int]]]] = []
    for number in range(14):
        name = names[number] if number < 3 else rng.choice(names)
        lake.write(rows(number), name, mode="append" if rng.random() < 0.7 else "overwrite")
        now = {known: sorted(lake.read(known)["a"].to_pylist()) for known in names[: number + 1]}
        states.append((start + timedelta(days=number), now))
    latest = lake.snapshots(limit=1)[0].snapshot_id
    with lake.connect_metadata(read_only=False) as con:
        for number, (time, _) in enumerate(states):
            snapshot = latest - len(states) + 1 + number
            con.execute(f"UPDATE ducklake_snapshot SET snapshot_time = '{time}' WHERE snapshot_id = {snapshot}")
        con.execute("UPDATE ducklake_snapshot SET snapshot_time = '2023-12-01 00:00:00+00' WHERE snapshot_id = 0")
    cuts = {"main.long": start + timedelta(days=8.5), "main.longer": start + timedelta(days=4.5)}
    done = expire(lake.config, Retention(LATER, tables=(("lon*", cuts["main.long"]), ("longer", cuts["main.longer"]))))
    assert done.needed_by_tables > 0
    assert len(done.snapshots) > 3
    for name, cut in cuts.items():
        for time, now in states:
            if time + timedelta(days=1) > cut:
                at = max(time, cut) + timedelta(hours=1)
                assert sorted(lake.read(name, as_of=at)["a"].to_pylist()) == now.get(name, []), (name, time)
    assert lake.fsck(deep=True, storage=True).findings == []


@catalogs(pooled=True)
def test_a_reader_of_inlined_rows_does_not_hold_up_an_expiry(
    make_lake: MakeLake, caplog: pytest.LogCaptureFixture
) -> None:
    lake = make_lake("lake", data_inlining_row_limit=10)
    lake.create_table("t", {"i": "BIGINT"})
    lake.write(pa.table({"i": [1]}), "t", mode="append", inline="auto")
    lake.drop_table("t")
    with lake.connect_metadata() as con:
        con.execute("BEGIN")
        con.execute("FROM ducklake_inlined_data_1_1").fetchall()
        assert len(expire(lake.config, Retention(LATER)).snapshots) == 3
        assert "ducklake_inlined_data_1_1 stays in the catalog" in caplog.text
        assert lake.write(pa.table({"i": [2]}), "u", mode="append").rows_written == 1
        con.execute("COMMIT")
    assert [finding.code for finding in lake.fsck().findings] == ["inlined-table-left-behind"]
    lake.write(pa.table({"i": [3]}), "u", mode="append")
    expire(lake.config, Retention(LATER))
    assert lake.fsck().findings == []


@catalogs(pooled=True)
def test_expiry_leaves_the_metadata_tables_of_a_table_that_is_being_created(lake: DuckLake) -> None:
    lake.write(rows(1), "t", mode="append")
    damage(lake, "CREATE TABLE ducklake_inlined_data_99_1 (row_id BIGINT)")
    expire(lake.config, Retention(LATER))
    with lake.connect_metadata() as con:
        assert con.execute("FROM ducklake_inlined_data_99_1").fetchall() == []


@catalogs(quick=[SQLITE])
def test_a_read_only_lake_refuses_expiry(lake: DuckLake, make_lake: MakeLake) -> None:
    lake.write(rows(1), "t", mode="append")
    with pytest.raises(ReadOnlyError, match=r"expiring snapshots: lake `.*` is open read-only"):
        expire(make_lake(read_only=True, create_if_missing=False).config, Retention(LATER))
