"""Lakes shared with engines that do not use DuckDB: ducklake-sdk (Rust) and polars-ducklake.

We read, append to, replace and check what these peers write, and they read what we write. The tests compare rows and
not counts. A limit of a peer is pinned by its message, so that a version without the limit is noticed.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.config.catalogs import FileCatalog
from ducklake_orch.errors import StatementError
from tests.catalog.differential.oracle import Oracle
from tests.catalog.differential.values import SAMPLES, Scalar, Type, Value, sql_type
from tests.support.backends import SQLITE, catalogs
from tests.support.lakes import MakeLake
from tests.support.plan_reader import read_plan

pytest.importorskip("polars_hash", reason="ducklake-sdk needs a newer Polars than the lowest that we support")
import ducklake
import polars as pl
from polars_ducklake import scan_ducklake
from sqlalchemy import NullPool, create_engine

Row = tuple[Any, ...]
# The catalogs that the peers support and that several processes can open at once.
shared_catalogs = catalogs(sql_writes=True, shared=True)
# Limits of the peers do not depend on the catalog.
limits = catalogs(sql_writes=True, shared=True, quick=[SQLITE])


@dataclass(frozen=True)
class Shared:
    """A lake that all engines have open.

    Attributes:
        lake: The lake.
        url: The URL of its catalog for SQLAlchemy.
    """

    lake: DuckLake
    url: str

    @contextmanager
    def sdk(self) -> Iterator[Any]:
        """Open the lake with ducklake-sdk."""
        peer = ducklake.connect(self.url)
        try:
            yield peer
        finally:
            peer.disconnect()

    def ours(self, table: str) -> list[Row]:
        """Return the rows that DuckDB reads."""
        result = self.lake.execute(f"FROM {table}", max_rows=None).raise_for_error()
        return plain([tuple(row.values()) for row in result.rows])

    def sdk_rows(self, table: str) -> list[Row]:
        with self.sdk() as peer:
            return plain(peer.table(table).read_polars().rows())

    def polars_rows(self, table: str) -> list[Row]:
        # A pool would keep a SQLite file open. Other SQLite libraries in this process do not see its locks: the last
        # one that closes the file deletes the WAL, and a connection with the old WAL open still reads from it.
        engine = create_engine(self.url, poolclass=NullPool)
        return plain(scan_ducklake(engine, table).collect().rows())

    def assert_rows(
        self, table: str, rows: Sequence[Row], *, findings: Sequence[str] | None = None, no_polars: str | None = None
    ) -> None:
        """Check the rows of each reader, including the plan reader.

        Args:
            table: The table.
            rows: The expected rows.
            findings: The expected codes of fsck for a table that all can read; None checks none.
            no_polars: The message of polars-ducklake if it cannot read the table.
        """
        expected = plain(rows)
        assert self.ours(table) == expected
        assert plain(read_plan(self.lake, table)) == expected
        assert self.lake.table(table).count() == len(rows)
        assert self.sdk_rows(table) == expected
        if no_polars is None:
            assert self.polars_rows(table) == expected
        else:
            with pytest.raises(BaseException, match=no_polars):  # a panic of Polars is no Exception
                self.polars_rows(table)
        assert findings is None or self.findings() == set(findings)

    def findings(self) -> set[str]:
        found = {finding.code for finding in self.lake.fsck(deep=True, storage=True).findings}
        return found - {"odd-data-path"}  # lakes of the sdk have a `file://` URL as data path


# The sdk's partition folders have other names than the extension's, which cannot merge a partition in two folders.
SCATTERED = ["scattered-partition"]
# The message for columns that older files hold in another type.
PROMOTED = r"Int32.*Int64"
NEW_FIELD = "structs have different number of fields"


def plain(rows: Sequence[Row]) -> list[Row]:
    """Return rows sorted and as texts, because NaN equals nothing and names of zones differ."""
    return sorted(tuple(map(plain_value, row)) for row in rows)


def plain_value(value: Any) -> str:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return repr(value.astimezone(UTC))
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {plain_value(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(plain_value, value))}]"
    return repr(value)


@pytest.fixture
def shared(make_lake: MakeLake, tmp_path: Path) -> Shared:
    """Return a lake that ducklake-sdk created. In other lakes it finds no local files, see below."""
    files = tmp_path / "files"
    # Its data path is a URL, which we keep.
    storage = {"type": "local", "path": files}
    lake = make_lake(storage=storage, override_data_path=True, create_if_missing=False, data_inlining_row_limit=0)
    ducklake.create(url(lake), data_path=str(files)).disconnect()
    return Shared(lake, url(lake))


def url(lake: DuckLake) -> str:
    catalog = lake.config.catalog
    if isinstance(catalog, FileCatalog):
        return f"sqlite:///{catalog.path}"
    return catalog.to_url(reveal=True).replace("postgresql:", "postgresql+psycopg:", 1)


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    oracle = Oracle()
    yield oracle
    oracle.close()


# --- tables of the peers ----------------------------------------------------------------------------------------------

FLAT = {"id": pl.Int64, "s": pl.String, "d": pl.Date, "f": pl.Float64, "x": pl.Decimal(9, 2)}
FLAT_TYPES = {
    "id": ducklake.Int64(),
    "s": ducklake.Varchar(),
    "d": ducklake.Date(),
    "f": ducklake.Float64(),
    "x": ducklake.Decimal(9, 2),
}
FLAT_ROWS: list[Row] = [
    (1, "a", date(2024, 1, 1), 1.5, Decimal("1.10")),
    (2, "b", date(2024, 5, 1), float("nan"), None),
    (3, "it", date(2023, 1, 1), None, Decimal("-2.25")),
]
MORE_ROWS: list[Row] = [(4, "a", date(2024, 7, 1), -1.0, Decimal("0.00")), (5, "c", date(2022, 1, 1), 0.5, None)]
NESTED = {"id": pl.Int64, "l": pl.List(pl.Int32), "st": pl.Struct({"a": pl.Int32, "b": pl.List(pl.String)})}
NESTED_TYPES = {
    "id": ducklake.Int64(),
    "l": ducklake.List(ducklake.Int32()),
    "st": ducklake.Struct({"a": ducklake.Int32(), "b": ducklake.List(ducklake.Varchar())}),
}
NESTED_ROWS: list[Row] = [
    (1, [1, None], {"a": 1, "b": ["it's", None]}),
    (2, None, None),
    (3, [], {"a": None, "b": []}),
]


def frame(schema: Any, rows: Sequence[Row]) -> Any:
    return pl.DataFrame(rows, schema=schema, orient="row")


@shared_catalogs
def test_flat_and_nested_rows_of_the_sdk_are_read(shared: Shared) -> None:
    with shared.sdk() as peer:
        for name, types, schema, rows in (
            ("flat", FLAT_TYPES, FLAT, FLAT_ROWS),
            ("nested", NESTED_TYPES, NESTED, NESTED_ROWS),
        ):
            table = peer.create_table(name, schema=types)
            table.sink_polars(frame(schema, rows).lazy())
    shared.assert_rows("flat", FLAT_ROWS)
    shared.assert_rows("nested", NESTED_ROWS, findings=[])
    shared.lake.write(frame(FLAT, MORE_ROWS), "flat", mode="append")
    shared.lake.write(frame(NESTED, NESTED_ROWS), "nested", mode="append")
    shared.assert_rows("flat", [*FLAT_ROWS, *MORE_ROWS])
    shared.assert_rows("nested", [*NESTED_ROWS, *NESTED_ROWS])
    with shared.sdk() as peer:
        peer.table("flat").sink_polars(frame(FLAT, FLAT_ROWS[:1]).lazy())
    shared.assert_rows("flat", [*FLAT_ROWS, *MORE_ROWS, FLAT_ROWS[0]])
    shared.lake.write(frame(FLAT, MORE_ROWS), "flat", mode="overwrite")
    shared.assert_rows("flat", MORE_ROWS, findings=[])


@shared_catalogs
def test_partitions_of_the_sdk_are_read_and_replaced(shared: Shared) -> None:
    with shared.sdk() as peer:
        table = peer.create_table("t", schema=FLAT_TYPES)
        keys = [ducklake.PartitionColumn("s"), ducklake.PartitionColumn("d", transform="year")]
        table.update_partitioning(ducklake.Partitioning(keys))
        table.sink_polars(frame(FLAT, FLAT_ROWS).lazy())
    shared.assert_rows("t", FLAT_ROWS, findings=[])
    partitions = [partition.values for partition in shared.lake.table("t").partitions()]
    assert {"s": "a", "year(d)": "2024"} in partitions
    assert len(shared.lake.table("t").files(where="s = 'b'")) == 1
    shared.lake.write(frame(FLAT, MORE_ROWS), "t", mode="overwrite_partitions")
    shared.assert_rows("t", [*FLAT_ROWS[1:], *MORE_ROWS])
    shared.lake.write(frame(FLAT, MORE_ROWS[:1]), "t", mode="replace_where", where="d >= '2024-01-01'")
    shared.assert_rows("t", [FLAT_ROWS[2], *MORE_ROWS])
    with shared.sdk() as peer:
        peer.table("t").sink_polars(frame(FLAT, FLAT_ROWS[:1]).lazy())
    shared.assert_rows("t", [FLAT_ROWS[0], FLAT_ROWS[2], *MORE_ROWS], findings=SCATTERED)


@shared_catalogs
def test_buckets_of_the_sdk_are_read_and_pruned(shared: Shared) -> None:
    with shared.sdk() as peer:
        table = peer.create_table("t", schema=FLAT_TYPES)
        keys = [ducklake.PartitionColumn("s", transform="bucket", num_buckets=4)]
        table.update_partitioning(ducklake.Partitioning(keys))
        table.sink_polars(frame(FLAT, FLAT_ROWS).lazy())
    shared.lake.write(frame(FLAT, MORE_ROWS), "t", mode="append")
    shared.assert_rows("t", [*FLAT_ROWS, *MORE_ROWS], findings=SCATTERED)
    shared.lake.write(frame(FLAT, FLAT_ROWS), "t", mode="overwrite")
    shared.assert_rows("t", FLAT_ROWS, findings=[])


@shared_catalogs
def test_columns_altered_by_the_sdk_are_read(shared: Shared) -> None:
    with shared.sdk() as peer:
        table = peer.create_table("t", schema={"id": ducklake.Int32(), "s": ducklake.Varchar()})
        table.sink_polars(frame({"id": pl.Int32, "s": pl.String}, [(1, "a")]).lazy())
        table.add_column(ducklake.Column("n", ducklake.Int16()))
        table.update_column_dtype("id", ducklake.Int64())
        table.rename_column("s", "text")
    shared.assert_rows("t", [(1, "a", None)], no_polars=PROMOTED)
    wider = {"id": pl.Int64, "text": pl.String, "n": pl.Int16}
    shared.lake.write(frame(wider, [(2**40, "b", 7)]), "t", mode="append")
    shared.assert_rows("t", [(1, "a", None), (2**40, "b", 7)], no_polars=PROMOTED, findings=[])


@shared_catalogs
def test_inlined_rows_of_the_sdk_are_read(shared: Shared) -> None:
    rows: list[Row] = [FLAT_ROWS[0], (6, "z", date(2020, 1, 1), 0.25, Decimal("7.00"))]
    with shared.sdk() as peer:
        table = peer.create_table("t", schema=FLAT_TYPES)
        table.set_metadata(data_inlining_row_limit=10)
        table.write_polars(frame(FLAT, rows))
    shared.lake.write(frame(FLAT, MORE_ROWS), "t", mode="append")
    expected = plain([*rows, *MORE_ROWS])
    assert shared.ours("t") == plain(read_plan(shared.lake, "t")) == shared.sdk_rows("t") == expected
    with pytest.raises(NotImplementedError, match="has inlined data stored directly in the catalog"):
        shared.polars_rows("t")
    result = shared.lake.write(frame(FLAT, MORE_ROWS), "t", mode="overwrite")
    assert result.rows_removed == len(expected)
    assert shared.ours("t") == shared.sdk_rows("t") == plain(MORE_ROWS)
    assert shared.findings() == set()


@catalogs(shared=True, pooled=False)
def test_the_extension_cannot_read_inlined_nulls_of_the_sdk(shared: Shared) -> None:
    with shared.sdk() as peer:
        table = peer.create_table("t", schema={"f": ducklake.Float64()})
        table.set_metadata(data_inlining_row_limit=10)
        table.write_polars(frame({"f": pl.Float64}, [(None,)]))
    with pytest.raises(StatementError, match="Could not convert string 'NULL' to DOUBLE"):
        shared.ours("t")


# --- tables of ducklake-orch ------------------------------------------------------------------------------------------

# Types and values that both peers support: no infinite dates, and no dates before Christ.
KNOWN = [
    *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"),
    *("DECIMAL(9,2)", "DECIMAL(38,10)", "FLOAT", "DOUBLE", "VARCHAR", "BLOB", "TIME", "TIMESTAMP_MS"),
    *("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "INTEGER[]", "VARCHAR[]", "INTEGER[][]"),
    'STRUCT("a" INTEGER, "b" VARCHAR)[]',
]
# The messages of ducklake-sdk and polars-ducklake for types that they do not support.
UNKNOWN: dict[str, tuple[str, str | None]] = {
    "HUGEINT": ("'Int128' is not a valid DuckLake data type", "unrecognised DuckLake column type 'int128'"),
    "UHUGEINT": ("'UInt128' is not a valid DuckLake data type", "unrecognised DuckLake column type 'uint128'"),
    "INTERVAL": ("month_day_nano_interval", "unrecognised DuckLake column type 'interval'"),
    "UUID": ("Cannot convert", "data type mismatch for column v: incoming: Binary != target: String"),
    "TIMESTAMP_S": ("data type mismatch for column v", "data type mismatch for column v"),
    "JSON": ("Extract.column_mapping", None),
    "GEOMETRY": ("geoarrow.wkb", "unrecognised DuckLake column type 'geometry'"),
    "VARIANT": ("Extract.column_mapping", "unrecognised DuckLake column type 'variant'"),
}


def samples(kind: Type) -> list[Value]:
    return [value for value in SAMPLES[kind] if not any(word in repr(value) for word in ("infinity", "BC", "'0001-"))]


@shared_catalogs
def test_peers_read_rows_of_every_supported_type(shared: Shared, oracle: Oracle) -> None:
    columns: list[tuple[str, Type]] = [("id", Scalar("BIGINT"))]
    columns += [(f"c{n}", kind) for n, kind in enumerate(SAMPLES) if sql_type(kind) in KNOWN]
    assert len(columns) == 1 + len(KNOWN)
    values = [samples(kind) for _, kind in columns[1:]]
    rows = [
        (str(n), *(column_values[n] if n < len(column_values) else None for column_values in values))
        for n in range(max(map(len, values)) + 1)
    ]
    shared.lake.write(oracle.arrow(columns, rows[:3]), "t", mode="append")
    shared.lake.write(oracle.arrow(columns, rows[3:]), "t", mode="append")
    assert len(shared.ours("t")) == len(rows)
    assert shared.sdk_rows("t") == shared.polars_rows("t") == shared.ours("t")


@limits
def test_peers_read_maps(shared: Shared) -> None:
    data = pa.table({"id": [1, 2], "m": pa.array([[("k", 1), ("it's", None)], None], pa.map_(pa.string(), pa.int32()))})
    shared.lake.write(data, "t", mode="append")
    assert shared.sdk_rows("t") == shared.ours("t")
    # Polars has no map type and returns lists of pairs.
    assert shared.polars_rows("t") == plain(
        [(1, [{"key": "k", "value": 1}, {"key": "it's", "value": None}]), (2, None)]
    )


@limits
def test_peers_refuse_unsupported_types(shared: Shared, oracle: Oracle) -> None:
    for n, (kind, messages) in enumerate(UNKNOWN.items()):
        name = f"t{n}"
        shared.lake.execute(f"CREATE TABLE {name} (id BIGINT, v {kind})").raise_for_error()
        rows = [("1", SAMPLES[Scalar(kind)][0])]
        shared.lake.write(oracle.arrow([("id", Scalar("BIGINT")), ("v", Scalar(kind))], rows), name, mode="append")
        for read, message in zip((shared.sdk_rows, shared.polars_rows), messages, strict=True):
            if message is None:
                assert read(name) == shared.ours(name)
            else:
                with pytest.raises(BaseException, match=message):  # a panic of Polars is no Exception
                    read(name)


@shared_catalogs
def test_peers_read_our_replaced_and_evolved_tables(shared: Shared) -> None:
    lake = shared.lake
    lake.write(frame(FLAT, FLAT_ROWS), "s.t", mode="append", partition_by=["s", "year(d)"], sort_by=["id desc"])
    shared.assert_rows("s.t", FLAT_ROWS)
    lake.write(frame(FLAT, MORE_ROWS), "s.t", mode="overwrite_partitions")
    shared.assert_rows("s.t", [*FLAT_ROWS[1:], *MORE_ROWS])
    wider = frame(FLAT, FLAT_ROWS[:1]).with_columns(n=pl.lit(7), st=pl.struct(a=pl.lit(1)))
    lake.write(wider, "s.t", mode="append", schema_evolution="add")
    old = [(*row, None, None) for row in [*FLAT_ROWS[1:], *MORE_ROWS]]
    shared.assert_rows("s.t", [*old, (*FLAT_ROWS[0], 7, {"a": 1})])
    deeper = wider.with_columns(st=pl.struct(a=pl.lit(2), b=pl.lit("x")))
    lake.write(deeper, "s.t", mode="append", schema_evolution="add")
    new = [(*FLAT_ROWS[0], 7, {"a": 1, "b": None}), (*FLAT_ROWS[0], 7, {"a": 2, "b": "x"})]
    shared.assert_rows("s.t", [*old, *new], no_polars=NEW_FIELD)
    lake.write(frame(FLAT, MORE_ROWS), "s.t", mode="replace_where", where="id >= 4")
    lake.execute("DELETE FROM s.t WHERE id = 4").raise_for_error()
    rows = [row for row in [*old, *new] if row[0] != 4]
    shared.assert_rows("s.t", rows, no_polars=NEW_FIELD)
    grown = (*FLAT_ROWS[0], 2**40, {"a": 2, "b": "x"})
    lake.write(deeper.with_columns(n=pl.lit(2**40)), "s.t", mode="append", schema_evolution="promote")
    shared.assert_rows("s.t", [*rows, grown], no_polars=f"{PROMOTED}|{NEW_FIELD}", findings=[])


@shared_catalogs
def test_the_sdk_appends_to_our_tables(shared: Shared) -> None:
    # The sdk takes the whole text of a sort key as a column name.
    data = frame(FLAT, FLAT_ROWS)
    shared.lake.write(data, "t", mode="append", partition_by=["bucket(3, s)"], sort_by=["id desc"])
    with shared.sdk() as peer:
        peer.table("t").sink_polars(frame(FLAT, MORE_ROWS).lazy())
    shared.assert_rows("t", [*FLAT_ROWS, *MORE_ROWS], findings=SCATTERED)
    shared.lake.write(frame(FLAT, MORE_ROWS), "t", mode="overwrite")
    shared.assert_rows("t", MORE_ROWS, findings=[])


@limits
def test_the_sdk_finds_no_files_below_a_plain_path(make_lake: MakeLake, tmp_path: Path) -> None:
    # The extension writes plain paths, of which the sdk drops the last folder. It handles only URLs correctly.
    lake = make_lake(storage={"type": "local", "path": tmp_path / "files"}, data_inlining_row_limit=0)
    lake.execute("CREATE TABLE of_the_engine AS SELECT 1 AS i").raise_for_error()
    shared = Shared(lake, url(lake))
    with pytest.raises(FileNotFoundError, match="object-store error"):
        shared.sdk_rows("of_the_engine")
    assert shared.polars_rows("of_the_engine") == plain([(1,)])


@limits
def test_peers_miss_files_below_folders_with_escapes(shared: Shared) -> None:
    # The extension has the same folder names. Both peers decode `%27` in a path, and read only folders without it.
    rows: list[Row] = [(1, "it's"), (2, "a b/é"), (3, None)]
    data = frame({"id": pl.Int64, "s": pl.String}, rows)
    shared.lake.write(data, "t", mode="append", partition_by=["s"])
    for read in (shared.sdk_rows, shared.polars_rows):
        with pytest.raises(FileNotFoundError):
            read("t")
    shared.lake.set_option("hive_file_pattern", False)
    shared.lake.write(data, "u", mode="append", partition_by=["s"])
    shared.assert_rows("u", rows, findings=[])
