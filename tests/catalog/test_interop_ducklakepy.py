"""Lakes shared with ducklakepy, an implementation in Python of formats 1.0 and 1.1.

The extension reads format 1.0 only. Lakes of format 1.1 are read by readers of our own, and compared with ducklakepy's
rows at each snapshot.
"""

from collections.abc import Callable
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ducklake_orch import errors
from tests.support.backends import LOCAL, POSTGRES, SQLITE, Backend
from tests.support.ducklakepy_lakes import SCHEMA, Column, Schema, append, fill, peer_of, plain, some_rows, types
from tests.support.lakes import MakeLake

on_its_catalogs = pytest.mark.parametrize(
    "backend", [pytest.param(Backend(catalog, LOCAL), id=catalog.name) for catalog in (SQLITE, POSTGRES)], indirect=True
)
formats = pytest.mark.parametrize("version", ["1.0", "1.1"])


@on_its_catalogs
@formats
@pytest.mark.parametrize("encrypted", [False, True])
def test_each_snapshot_of_ducklakepy_is_read(make_lake: MakeLake, version: str, encrypted: bool) -> None:
    lake = make_lake(create_if_missing=False)
    with peer_of(lake, version, encrypted=encrypted) as peer:
        fill(peer, version)
        assert {at: plain(lake.read("t", snapshot=at)) for at in peer.rows} == {
            at: plain(rows) for at, rows in peer.rows.items()
        }
        latest = peer.rows[max(peer.rows)]
        for row in latest.slice(0, 20).to_pylist():
            assert lake.read("t", columns=["id"], where=f"id = {row['id']}").to_pylist() == [{"id": row["id"]}]
            same_day = plain(lake.read("t", where=f"day = '{row['day']}'"))
            assert same_day == plain(latest.filter(pc.equal(latest["day"], row["day"])))
        assert lake.table("t").count() == latest.num_rows
        streamed = lake.read_batches("t", columns=["label"], batch_size=50).read_all()
        assert streamed.sort_by("label").equals(latest.select(["label"]).sort_by("label"))


@on_its_catalogs
@formats
def test_the_change_feed_is_that_of_ducklakepy(make_lake: MakeLake, version: str) -> None:
    lake = make_lake(create_if_missing=False)
    with peer_of(lake, version) as peer:
        fill(peer, version)
        last = peer.catalog.current_snapshot().snapshot_id
        theirs = peer.catalog.load_table("main.t").changes(0, last).to_arrow()
        ours = lake.changes("t", 0)
        assert plain(ours.select(theirs.column_names)) == plain(theirs)


@on_its_catalogs
def test_a_lake_of_format_1_1_is_described_and_checked(make_lake: MakeLake) -> None:
    lake = make_lake(create_if_missing=False)
    with peer_of(lake, "1.1") as peer:
        fill(peer, "1.1")
        peer.catalog.create_namespace("main.inner")
        peer.catalog.create_table("main.inner.x", schema=SCHEMA)
        assert [str(table.table) for table in lake.tables()] == ["x", "t"]
        assert lake.snapshots()[0].snapshot_id == peer.catalog.current_snapshot().snapshot_id
        assert sum(file.rows for file in lake.table("t").files()) >= lake.table("t").count()
        assert lake.fsck(deep=True, storage=True).findings == []
        assert {table.table for table in lake.health().tables} == {"main.t", "inner.x"}
        assert lake.report().snapshot == peer.catalog.current_snapshot().snapshot_id
        assert lake.exists("t")
        before_the_first = datetime(2020, 1, 1, tzinfo=UTC)
        with pytest.raises(errors.SnapshotNotFoundError, match="2020-01-01"):
            lake.read("t", as_of=before_the_first)
        with pytest.raises(errors.SnapshotNotFoundError, match="There is no snapshot 999"):
            lake.read("t", snapshot=999)
        assert lake.read("t", as_of=datetime.now(UTC)).num_rows == lake.table("t").count()


@on_its_catalogs
def test_what_needs_the_extension_is_refused_for_format_1_1(make_lake: MakeLake) -> None:
    lake = make_lake(create_if_missing=False)
    with peer_of(lake, "1.1") as peer:
        fill(peer, "1.1")
        refused: dict[str, Callable[[], object]] = {
            "append": lambda: lake.write(some_rows(0, 1), "t", mode="append"),
            "delete": lambda: lake.delete("t", "id = 1"),
            "merge": lambda: lake.merge(some_rows(0, 1), "t", keys=["id"]),
            "maintain": lambda: lake.maintain(),
            "execute": lambda: lake.execute("SELECT 1 FROM t").raise_for_error(),
            "create": lambda: lake.create_table("u", {"i": "INTEGER"}),
            "drop": lambda: lake.drop_table("t"),
            "transaction": lambda: lake.transaction().__enter__().write(some_rows(0, 1), "t", mode="append"),
        }
        for name, verb in refused.items():
            with pytest.raises(errors.CatalogVersionError, match=r"1\.1.*reads such lakes by its own readers"):
                print(name, verb())
        latest = peer.rows[max(peer.rows)]
        assert plain(peer.catalog.load_table("main.t").to_arrow()) == plain(lake.read("t")) == plain(latest)


@on_its_catalogs
def test_columns_named_as_those_of_the_catalog_keep_their_values(make_lake: MakeLake) -> None:
    lake = make_lake(create_if_missing=False)
    names = ("row_id", "begin_snapshot", "end_snapshot")
    with peer_of(lake, "1.1") as peer:
        peer.catalog.create_table("main.t", schema=Schema(*(Column(name, types.Int64Type()) for name in names)))
        for first in (500, 600):
            rows = pa.table({name: pa.array(range(first, first + 3), pa.int64()) for name in names})
            peer.change(append(rows))
        peer.change(lambda table: table.delete(pc.field("row_id") == 601))
        latest = peer.rows[max(peer.rows)]
        assert plain(lake.read("t")) == plain(latest)
        assert lake.read("t", columns=["end_snapshot"], where="begin_snapshot = 502").to_pylist() == [
            {"end_snapshot": 502}
        ]
        assert {row["row_id"] for row in lake.changes("t").to_pylist()} == {500, 501, 502, 600, 601, 602}
        assert [table.rows for table in lake.tables(rows=True)] == [latest.num_rows]
        assert lake.fsck(deep=True).findings == []


@on_its_catalogs
def test_types_that_duckdb_lacks_do_not_prevent_reads(make_lake: MakeLake) -> None:
    lake = make_lake(create_if_missing=False)
    columns = {"i": types.Int64Type(), "f": types.Float32Type(), "ns": types.TimestampTzNsType(), "n": types.NullType()}
    with peer_of(lake, "1.1") as peer:
        peer.catalog.create_table("main.t", schema=Schema(*(Column(name, kind) for name, kind in columns.items())))
        at = datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
        for count in (2, 50):
            rows = {
                "i": pa.array([7] * count, pa.int64()),
                "f": pa.array([0.1] * count, pa.float32()),
                "ns": pa.array([at] * count, pa.timestamp("ns", "UTC")),
                "n": pa.nulls(count),
            }
            peer.change(append(pa.table(rows)))
        found = lake.read("t")
        assert found["ns"].to_pylist() == [at] * 52
        assert found["n"].null_count == 52
        assert lake.read("t", columns=["i"], where="i = 7").num_rows == 52
        assert lake.table("t").schema() is not None
        assert lake.fsck(deep=True).findings == []


@on_its_catalogs
def test_nested_schemas_of_the_same_name_are_not_mixed_up(make_lake: MakeLake) -> None:
    lake = make_lake(create_if_missing=False)
    with peer_of(lake, "1.1") as peer:
        for schema in ("a", "a.same", "b", "b.same"):
            peer.catalog.create_namespace(schema)
        peer.catalog.create_table("a.same.t", schema=SCHEMA)
        assert lake.read("same.t").num_rows == 0
        peer.catalog.create_table("b.same.t", schema=SCHEMA)
        with pytest.raises(errors.CatalogVersionError, match=r"several tables `same\.t`"):
            lake.read("same.t")


@on_its_catalogs
@pytest.mark.parametrize("encrypted", [False, True])
def test_ducklakepy_reads_what_we_write(make_lake: MakeLake, encrypted: bool) -> None:
    lake = make_lake(create_if_missing=False)
    with peer_of(lake, "1.0", encrypted=encrypted) as peer:
        fill(peer, "1.0")
        lake.delete("t", "id % 3 = 0")
        lake.merge(some_rows(480, 510, name="label"), "t", keys=["id"], schema_evolution="add")
        lake.update("t", {"extra": "id"}, where="id > 400")
        for _ in range(2):
            lake.write(some_rows(900, 1000, name="label"), "t", mode="append", schema_evolution="add")
        lake.maintain({"merge": {"min_files": 2}, "rewrite": {"delete_threshold": 0.01}}).raise_for_error()
        assert plain(peer.catalog.load_table("main.t").to_arrow()) == plain(lake.read("t"))
        peer.change(lambda table: table.delete(pc.field("id") == 950))
        assert plain(lake.read("t")) == plain(peer.rows[max(peer.rows)])
