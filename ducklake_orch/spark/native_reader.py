"""Read files with Spark's own Parquet reader: by name, as today's types, without deleted rows. See `NativeScan`."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb

from ducklake_orch.catalog.metadata import SNAPSHOT_ID, DataFile
from ducklake_orch.catalog.parquet import StoredColumn
from ducklake_orch.catalog.scan import ScanPlan
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.errors import FileNotUsableError
from ducklake_orch.spark.deletion_bits import BITS, CHUNK, POSITION, DeletionBits, has_deletions
from ducklake_orch.spark.path_partitions import PathPartitions
from ducklake_orch.spark.spark_quoting import name_sql
from ducklake_orch.spark.types import spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

# These override the session: names are not patterns, folders hold no columns unless `_frame` says so, missing or broken
# files raise, and old dates are in today's calendar.
_OPTIONS = {
    "__globPaths__": "false",
    "recursiveFileLookup": "true",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
# Reserved column names: rows of a table with such a column cannot be identified.
OWN_NAMES = {"_metadata", SNAPSHOT_ID, CHUNK, BITS, POSITION}
FLOATS = ("float32", "float64")
RETENTION = (
    "Read again: later snapshots do not need this file. Clean-up deletes the files of expired snapshots, so snapshots"
    " must be retained for longer than a read takes."
)


class _Group(NamedTuple):
    """Files that one DataFrame reads.

    Attributes:
        partial: Whether some of their rows are newer than the snapshot.
        values_in_path: Whether Spark takes the partition values from their paths.
        turn: 0 for files without deletions. Otherwise, a number that differs between files of the same size.
    """

    partial: bool
    values_in_path: bool
    turn: int = 0


@dataclass(frozen=True)
class NativeScan:
    """What the native reader needs besides the files.

    Attributes:
        spark: The session.
        config: The lake.
        plan: The scan.
        where: The condition in Spark's SQL, if there is one.
        defaults: The value of a missing column in a file, by column id, in Spark's SQL.
        prefixes: The prefix of the lake's paths, and the prefix that Spark needs instead.
    """

    spark: "SparkSession"
    config: LakeConfig
    plan: ScanPlan
    where: str | None
    defaults: Mapping[int, str]
    prefixes: tuple[str, str]

    def frames(self, layouts: Mapping[tuple[StoredColumn, ...], Sequence[DataFile]]) -> "list[DataFrame]":
        """Return one DataFrame for each way to read."""
        found, partitions = [], PathPartitions(self.plan)
        for stored, files in layouts.items():
            groups: dict[_Group, list[DataFile]] = defaultdict(list)
            same: Counter[tuple[_Group, int]] = Counter()
            for file in files:
                partial = file.partial_max is not None and file.partial_max > self.plan.snapshot
                group = _Group(partial, partitions.has_values_in_path(file, stored))
                if has_deletions(file):
                    same[group, file.file_size] += 1
                    group = group._replace(turn=same[group, file.file_size])
                groups[group].append(file)
            found += [self._frame(stored, group, files) for group, files in groups.items()]
        return found

    def _frame(self, stored: Sequence[StoredColumn], group: "_Group", files: Sequence[DataFile]) -> "DataFrame":
        from pyspark.sql.types import LongType, StructField, StructType

        fields = [StructField(column.name, _type_in_file(column), True) for column in stored if column.name is not None]
        if group.partial:
            fields.append(StructField(SNAPSHOT_ID, LongType(), True))
        frame = self._read(StructType(fields), [file.path for file in files], group.values_in_path)
        if group.partial:
            frame = frame.where(f"{SNAPSHOT_ID} <= {self.plan.snapshot}")
        values = [f"{self._value(column)} AS {name_sql(column.column.name)}" for column in stored]
        if not group.turn:
            return self._selected(frame.selectExpr(*values))
        bits, chunks = self._deletion_bits(files)
        frame = frame.selectExpr(*values, *bits.columns).join(chunks, CHUNK, "left").where(bits.condition)
        return self._selected(frame)

    def _selected(self, frame: "DataFrame") -> "DataFrame":
        kept = frame if self.where is None else frame.where(self.where)
        return kept.selectExpr(*(name_sql(column.name) for column in self.plan.columns))

    def _read(self, schema: Any, paths: Iterable[str], values_in_path: bool) -> "DataFrame":
        from pyspark.errors import AnalysisException

        before, after = self.prefixes
        folder, *uris = (f"{after}{path.removeprefix(before)}" for path in (self.plan.table.folder, *paths))

        def load(**more: str) -> "DataFrame":
            return self.spark.read.schema(schema).options(**_OPTIONS | more).parquet(*uris)

        if values_in_path:
            with suppress(Exception):  # such as credentials that may not list folders
                return load(recursiveFileLookup="false", basePath=folder)
        try:
            return load()
        except AnalysisException as error:
            if "PATH_NOT_FOUND" not in str(error):
                raise
            failure = FileNotUsableError(
                f"A file of table `{self.plan.table}` at snapshot {self.plan.snapshot} no longer exists:"
                f" {str(error)[:500]}",
                remedy=RETENTION,
            )
        raise failure

    def _deletion_bits(self, files: Sequence[DataFile]) -> "tuple[DeletionBits, DataFrame]":
        """Return how to find the deletions of files, no two of which have the same size, and their bits."""
        bits = DeletionBits(self.plan, files)
        with working_connection(self.config) as con, reading_files(self.config, self.plan):
            chunks = bits.chunks(con)
        return bits, self.spark.createDataFrame(chunks).hint("broadcast")

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
            case _:
                key, value = (
                    self._converted(child, f"{each}.{part}")
                    for child, part in zip(stored.children, ("key", "value"), strict=True)
                )
                entries = f"transform(map_entries({sql}), {each} -> struct({key} AS key, {value} AS value))"
                return f"map_from_entries({entries})"


@contextmanager
def reading_files(config: LakeConfig, plan: ScanPlan) -> Iterator[None]:
    """Raise an error that says what to do when DuckDB cannot read a file of a plan."""
    try:
        yield
        return
    except (duckdb.IOException, duckdb.InvalidInputException) as error:
        failure = FileNotUsableError(
            f"A file of table `{plan.table}` at snapshot {plan.snapshot} cannot be read: {config.scrubber(str(error))}",
            remedy=RETENTION,
        )
    raise failure


def missing_in(stored: StoredColumn) -> "Iterable[StoredColumn]":
    """Yield the columns that files lack: the column itself or columns inside it."""
    if stored.name is None:
        yield stored
    for child in stored.children:
        yield from missing_in(child)


def _has_current_shape(stored: StoredColumn) -> bool:
    return all(
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
