"""Read files with Spark's own Parquet reader: by name, as today's types, without deleted rows. See `NativeScan`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from ducklake_orch.catalog.metadata import SNAPSHOT_ID, DataFile
from ducklake_orch.catalog.parquet import StoredColumn
from ducklake_orch.catalog.scan import ScanPlan
from ducklake_orch.errors import FileNotUsableError
from ducklake_orch.spark.spark_quoting import name_sql
from ducklake_orch.spark.types import spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

# These override the session: names are not patterns, folders hold no columns, missing or broken files raise, and old
# dates are in today's calendar.
_OPTIONS = {
    "__globPaths__": "false",
    "recursiveFileLookup": "true",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
_ROW_NUMBER, _BLOCK, _BITS = (f"__ducklake_orch_{name}" for name in ("place", "block", "bits"))
# Reserved column names: rows of a table with such a column cannot be identified.
OWN_NAMES = {"_metadata", SNAPSHOT_ID, _ROW_NUMBER, _BLOCK, _BITS}
FLOATS = ("float32", "float64")
# Deletions are bits, one word for 64 rows. This many words in a block can be looked up, and planned, quickly.
_WORDS = 8
_ROWS = 64 * _WORDS
_BLOCK_OF = f"({{}} >> {_ROWS.bit_length() - 1})"
# Up to this many positions and delete files are combined in one task, without a shuffle.
_FEW_POSITIONS, _FEW_FILES = 100_000, 8
# More blocks than this, of 130 bytes each, are not broadcast to every executor.
_FEW_BLOCKS = 250_000
RETENTION = (
    "Read again: later snapshots do not need this file. Clean-up deletes the files of expired snapshots, so snapshots"
    " must be retained for longer than a read takes."
)


@dataclass(frozen=True)
class NativeScan:
    """What the native reader needs besides the files.

    Attributes:
        spark: The session.
        plan: The scan.
        where: The condition in Spark's SQL, if there is one.
        defaults: The value of a missing column in a file, by column id, in Spark's SQL.
        prefixes: The prefix of the lake's paths, and the prefix that Spark needs instead.
    """

    spark: "SparkSession"
    plan: ScanPlan
    where: str | None
    defaults: Mapping[int, str]
    prefixes: tuple[str, str]

    def frames(self, layouts: Mapping[tuple[StoredColumn, ...], Sequence[DataFile]]) -> "list[DataFrame]":
        """Return one DataFrame for each way to read: by layout, with or without deletions, whole or partial."""
        found = []
        for stored, files in layouts.items():
            by_kind: dict[tuple[bool, bool], list[DataFile]] = {}
            for file in files:
                partial = file.partial_max is not None and file.partial_max > self.plan.snapshot
                deleted = bool(file.deletes or self.plan.inlined_deletes.get(file.data_file_id))
                by_kind.setdefault((partial, deleted), []).append(file)
            found += [self._frame(stored, group, *kind) for kind, group in by_kind.items()]
        return found

    def _frame(
        self, stored: Sequence[StoredColumn], files: Sequence[DataFile], partial: bool, deleted: bool
    ) -> "DataFrame":
        from pyspark.sql.types import LongType, StructField, StructType

        fields = [StructField(column.name, _type_in_file(column), True) for column in stored if column.name is not None]
        if partial:
            fields.append(StructField(SNAPSHOT_ID, LongType(), True))
        frame = self._read(StructType(fields), [file.path for file in files])
        addresses = _addresses(frame) if deleted else None
        if partial:
            frame = frame.where(f"{SNAPSHOT_ID} <= {self.plan.snapshot}")
        values = [f"{self._value(column)} AS {name_sql(column.column.name)}" for column in stored]
        if addresses is not None:
            highest = max(file.record_count for file in files)
            numbering = numbered(self.spark, [addresses[file.path] for file in files], highest.bit_length())
            values.append(f"{numbering.sql} ^ _metadata.row_index AS {_ROW_NUMBER}")
        frame = frame.selectExpr(*values)
        if self.where is not None:
            frame = frame.where(self.where)
        if addresses is not None:
            numbers = {path: numbering.numbers[address] for path, address in addresses.items()}
            deletions = self._deletions(files, numbers)
            bit = f"getbit({_BITS}[CAST(({_ROW_NUMBER} & {_ROWS - 1}) >> 6 AS INT)], CAST({_ROW_NUMBER} & 63 AS INT))"
            frame = frame.selectExpr("*", f"{_BLOCK_OF.format(_ROW_NUMBER)} AS {_BLOCK}")
            frame = frame.join(deletions, _BLOCK, "left").where(f"{_BITS} IS NULL OR {bit} = 0")
        return frame.selectExpr(*(name_sql(column.name) for column in self.plan.columns))

    def _read(self, schema: Any, paths: Iterable[str]) -> "DataFrame":
        from pyspark.errors import AnalysisException

        before, after = self.prefixes
        uris = [f"{after}{path.removeprefix(before)}" for path in paths]
        try:
            return self.spark.read.schema(schema).options(**_OPTIONS).parquet(*uris)
        except AnalysisException as error:
            if "PATH_NOT_FOUND" not in str(error):
                raise
            failure = FileNotUsableError(
                f"A file of table `{self.plan.table}` at snapshot {self.plan.snapshot} no longer exists:"
                f" {str(error)[:500]}",
                remedy=RETENTION,
            )
        raise failure

    # --- deletions -----------------------------------------------------------------------------------------------

    def _deletions(self, files: Sequence[DataFile], numbers: Mapping[str, int]) -> "DataFrame":
        """Return the deleted rows of files as bits, by blocks of rows; `numbers` are the files' numbers by path."""
        inlined = self.plan.inlined_deletes
        row_numbers = [
            numbers[file.path] ^ position for file in files for position in inlined.get(file.data_file_id, ())
        ]
        frames = []
        if row_numbers:
            frames.append(self.spark.createDataFrame(pa.table({_ROW_NUMBER: pa.array(row_numbers, pa.int64())})))
        total = len(row_numbers)
        if any(file.deletes for file in files):
            frames.append(self._positions(files, numbers))
            total += sum(delete.delete_count for file in files for delete in file.deletes)
        found = frames[0] if len(frames) == 1 else frames[0].unionAll(frames[1])
        if total <= _FEW_POSITIONS and sum(len(file.deletes) for file in files) <= _FEW_FILES:
            found = found.coalesce(1)
        bits = _bits(found)
        blocks = min(total, sum(file.record_count // _ROWS + 1 for file in files))
        return bits.hint("broadcast") if blocks <= _FEW_BLOCKS else bits

    def _positions(self, files: Sequence[DataFile], numbers: Mapping[str, int]) -> "DataFrame":
        pairs = [(file, delete) for file in files for delete in file.deletes]
        later = any(delete.later for _, delete in pairs)
        frame = self._read(
            f"pos BIGINT{f', {SNAPSHOT_ID} BIGINT' if later else ''}", [delete.path for _, delete in pairs]
        )
        addresses = _addresses(frame)
        table = pa.table(
            {
                "deletes": [addresses[delete.path] for _, delete in pairs],
                "number": pa.array([numbers[file.path] for file, _ in pairs], pa.int64()),
                # Compared row by row only if some rows may have been deleted later.
                "began": pa.array([delete.begin_snapshot if delete.later else None for _, delete in pairs], pa.int64()),
            }
        )
        targets = self.spark.createDataFrame(table).hint("broadcast")
        frame = frame.selectExpr("*", "_metadata.file_path AS deletes").join(targets, "deletes")
        if later:
            frame = frame.where(f"began IS NULL OR coalesce({SNAPSHOT_ID}, began) <= {self.plan.snapshot}")
        return frame.selectExpr(f"number ^ pos AS {_ROW_NUMBER}")

    # --- values --------------------------------------------------------------------------------------------------

    def _value(self, stored: StoredColumn, inside: str = "") -> str:
        if stored.name is None:
            # A plain constant would make the column, or everything inside it, non-nullable.
            return f"IF(false, NULL, {self.defaults[stored.column.column_id]})"
        return self._converted(stored, f"{inside}.{name_sql(stored.name)}" if inside else name_sql(stored.name))

    def _converted(self, stored: StoredColumn, sql: str) -> str:
        if stored.column.type in FLOATS:
            # `nanvl` returns the value unchanged; Spark pushes no condition below it.
            return f"nanvl({sql}, {sql})"
        if _has_current_shape(stored) and not _has_floats(stored):
            return sql  # the reader itself converts to today's types
        each = f"e{stored.column.column_id}"
        match stored.column.type:
            case "struct":
                fields = [f"{self._value(child, sql)} AS {name_sql(child.column.name)}" for child in stored.children]
                return f"IF({sql} IS NULL, NULL, struct({', '.join(fields)}))"
            case "list":
                return f"transform({sql}, {each} -> {self._converted(stored.children[0], each)})"
            case "variant":
                # DuckDB writes NULL as a null variant.
                return f"IF(is_variant_null({sql}), NULL, {sql})"
            case _:
                key, value = (
                    self._converted(child, f"{each}.{part}")
                    for child, part in zip(stored.children, ("key", "value"), strict=True)
                )
                entries = f"transform(map_entries({sql}), {each} -> struct({key} AS key, {value} AS value))"
                return f"map_from_entries({entries})"


def missing_in(stored: StoredColumn) -> "Iterable[StoredColumn]":
    """Yield the columns that files lack: the column itself or columns inside it."""
    if stored.name is None:
        yield stored
    for child in stored.children:
        yield from missing_in(child)


def _has_current_shape(stored: StoredColumn) -> bool:
    return stored.column.type != "variant" and all(
        _has_current_shape(child)
        and child.name is not None
        and (stored.column.type != "struct" or child.name == child.column.name)
        for child in stored.children
    )


def _has_floats(stored: StoredColumn) -> bool:
    """Whether Spark pushes conditions on floating-point numbers in the column down to files; not so in lists and maps.

    In files, -0.0 and 0.0 are two values to dictionaries, bounds and Bloom filters, and bounds may exclude NaN.
    """
    return stored.column.type in FLOATS or (stored.column.type == "struct" and any(map(_has_floats, stored.children)))


def _type_in_file(stored: StoredColumn) -> "DataType":
    """Return the type for Spark to read: the file's names with today's types."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    match stored.column.type:
        case "list":
            return ArrayType(_type_in_file(stored.children[0]), True)
        case "map":
            key, value = map(_type_in_file, stored.children)
            return MapType(key, value, True)
        case "struct":
            present = [child for child in stored.children if child.name is not None]
            return StructType([StructField(str(column.name), _type_in_file(column), True) for column in present])
    return spark_type(stored.column)


def _bits(row_numbers: "DataFrame") -> "DataFrame":
    """Return row numbers as bits, in words of 64, with one row per block of rows."""
    from pyspark.sql.functions import expr

    word, bit = f"({_ROW_NUMBER} & {_ROWS - 1}) >> 6", f"shiftleft(1L, CAST({_ROW_NUMBER} & 63 AS INT))"
    # Computed from an aggregate, because a legacy setting drops the grouping expression.
    block = expr(f"{_BLOCK_OF.format(f'min({_ROW_NUMBER})')} AS {_BLOCK}")
    words = [expr(f"bit_or(IF({word} = {n}, {bit}, 0L)) AS w{n}") for n in range(_WORDS)]
    blocks = row_numbers.groupBy(expr(_BLOCK_OF.format(_ROW_NUMBER))).agg(block, *words)
    return blocks.selectExpr(_BLOCK, f"array({', '.join(f'w{n}' for n in range(_WORDS))}) AS {_BITS}")


def _addresses(frame: "DataFrame") -> dict[str, str]:
    """Return `_metadata.file_path` of the local files that a DataFrame reads, by path."""
    # `inputFiles` does not list the files of a plan that a user has cached; this plan is never cached.
    uris = frame.select("_metadata.file_path").inputFiles()
    return {unquote(path): f"file:{path}" for path in (uri.removeprefix("file:").replace("//", "", 1) for uri in uris)}


@dataclass(frozen=True)
class Numbering:
    """Numbers of files, which combined with a row's position in the lower bits identify a row uniquely.

    Spark looks up a number in a third of the time that it takes for a file's address and a position.

    Attributes:
        sql: The expression for the number of the file that is being read.
        numbers: The number of each file, by its address.
    """

    sql: str
    numbers: Mapping[str, int]


def numbered(spark: "SparkSession", addresses: Sequence[str], bits: int) -> Numbering:
    """Number files by a hash of their address such that no two numbers share the bits above the position."""
    known = spark.createDataFrame(pa.table({"address": sorted(set(addresses))}))
    for salt in count():
        rows = known.selectExpr("address", f"xxhash64(address, {salt}) AS number").collect()
        # No file has more than 2^32 rows, whatever its metadata claims.
        if len({row.number >> min(bits, 32) for row in rows}) == len(rows):
            break
    return Numbering(f"xxhash64(_metadata.file_path, {salt})", {row.address: row.number for row in rows})
