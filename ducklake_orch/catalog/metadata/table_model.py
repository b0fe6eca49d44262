"""What the metadata tables hold, as plain frozen objects: a table at one snapshot, its files, their statistics."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ducklake_orch.catalog.metadata.lake_mark import file_prefix

# What the engine calls a row's id and the snapshot it came with, where it writes them down.
ROW_ID, SNAPSHOT_ID = "_ducklake_internal_row_id", "_ducklake_internal_snapshot_id"
# Columns that the engine puts into files itself, by their Parquet field ids.
ROW_ID_FIELD = 2147483540
SNAPSHOT_ID_FIELD = 2147483539
DELETED_PATH_FIELD = 2147483646
DELETED_POS_FIELD = 2147483645


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """A snapshot with the counters that the next commit continues."""

    snapshot_id: int
    schema_version: int
    next_catalog_id: int
    next_file_id: int


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """A column at one snapshot, with the columns inside it.

    Attributes:
        column_id: Its identity for ever, and its field id in Parquet.
        type: In DuckLake's words: `int32`, `decimal(10,2)`, `list`.
        initial_default: What files written before the column existed have in it, as text.
        default: What a row gets that does not name it: a literal as text, or an expression.
        default_type: `literal` or `expression`; empty for nested columns.
        comment: What it is for.
    """

    column_id: int
    name: str
    type: str
    nullable: bool
    initial_default: str | None = None
    default: str | None = None
    default_type: str = "literal"
    children: tuple["ColumnDef", ...] = ()
    comment: str | None = field(default=None, compare=False)

    def leaves(self) -> Iterator["ColumnDef"]:
        """Return the columns that hold values: itself, or those inside it; only they have statistics."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()


@dataclass(frozen=True, slots=True)
class ColumnVersion:
    """A column as it was from one snapshot to another, without those inside it."""

    column: ColumnDef
    parent: int | None
    begin_snapshot: int
    end_snapshot: int | None


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One key of a partition spec: `identity`, `year`, `month`, `day`, `hour` or `bucket(n)` of a column."""

    column_id: int
    transform: str


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """How a table's files are laid out; a table that is not partitioned has none."""

    partition_id: int
    fields: tuple[PartitionField, ...]


@dataclass(frozen=True, slots=True)
class SortKey:
    """One key of a sort spec."""

    expression: str
    direction: str
    nulls: str


@dataclass(frozen=True, slots=True)
class InlinedTable:
    """A table in the metadata database that holds the inlined rows of one schema version."""

    name: str
    schema_version: int


@dataclass(frozen=True, slots=True)
class TableDef:
    """A table at one snapshot.

    Attributes:
        folder: Where its files go; absolute, with a closing slash.
        data_path: The lake's root, which other paths are relative to.
        schema_versions: When each version of its schema began, as (snapshot, version), oldest first.
        inlined: The tables that hold its inlined rows.
        options: The persisted options that hold for it.
        lake_mark: What the names of its lake's files have in them.
        past_columns: Every version that its columns have had, those of today included.
        past_specs: Every partition spec that one of its files may still have.
    """

    table_id: int
    uuid: str
    schema_id: int
    schema: str
    name: str
    folder: str
    data_path: str
    columns: tuple[ColumnDef, ...]
    partition: PartitionSpec | None = None
    sort: tuple[SortKey, ...] = ()
    schema_versions: tuple[tuple[int, int], ...] = ()
    inlined: tuple[InlinedTable, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    encrypted: bool = False
    lake_mark: str = ""
    past_columns: tuple[ColumnVersion, ...] = field(default=(), compare=False, repr=False)
    past_specs: tuple[PartitionSpec, ...] = field(default=(), compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    def file_prefix(self, write_id: str) -> str:
        """Return what the names of all files begin with that a write makes for it."""
        return file_prefix(write_id, self.lake_mark)

    def column(self, column_id: int) -> ColumnDef:
        """Return the top-level column of that id; of a table as it was, also one that it only got later."""
        known = next((one for one in self.columns if one.column_id == column_id), None)
        return known or next(one.column for one in reversed(self.past_columns) if one.column.column_id == column_id)

    def leaves(self) -> dict[int, ColumnDef]:
        """Return the columns that hold values, by id."""
        return {leaf.column_id: leaf for column in self.columns for leaf in column.leaves()}


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Statistics of a column in a file, as the catalog writes them: bounds are texts, and not exact for long strings.

    Attributes:
        value_count: Values that are not NULL.
        min_value: A lower bound, None when there is none or it is unknown.
        contains_nan: None where the type has no NaN, or nobody looked.
        extra: JSON about a geometry or a variant.
    """

    size_bytes: int | None = None
    value_count: int | None = None
    null_count: int | None = None
    min_value: str | None = None
    max_value: str | None = None
    contains_nan: bool | None = None
    extra: str | None = None


@dataclass(frozen=True, slots=True)
class VariantStats:
    """Statistics of a shredded field inside a variant."""

    column_id: int
    path: str
    shredded_type: str
    stats: ColumnStats


@dataclass(frozen=True, slots=True)
class MappedName:
    """How a column of the table is called in files without field ids."""

    source: str
    column_id: int
    is_partition: bool = False
    children: tuple["MappedName", ...] = ()


@dataclass(frozen=True, slots=True)
class NewFile:
    """A finished Parquet file that is not in the lake yet.

    Attributes:
        path: Absolute.
        partition_values: One for each key of the table's partition spec, None for NULL.
        stats: By column id; a column that is not there has no statistics.
        mapping: Names of its columns where it carries no field ids to trust.
        outside: Whether it lies outside the table's folder.
        has_row_ids: Whether its rows were in the lake before, and carry the ids that they had.
    """

    path: str
    record_count: int
    file_size: int
    footer_size: int | None
    partition_values: tuple[str | None, ...] = ()
    stats: Mapping[int, ColumnStats] = field(default_factory=dict)
    variants: tuple[VariantStats, ...] = ()
    mapping: tuple[MappedName, ...] | None = None
    outside: bool = False
    has_row_ids: bool = False


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """The file that names the deleted positions of a data file: all of them, also those that one before it named.

    Attributes:
        path: Absolute.
        partial_max: The newest of the snapshots that its deletions came with, if there are several; but where the
            engine flushed them from the catalog, it says nothing, although the file tells them apart.
        format: `parquet`, or `puffin` for deletion vectors.
        later: Whether it was written after the snapshot that was asked for: then some of its deletions may have come
            later, too, which its column `_ducklake_internal_snapshot_id` tells, if it has one.
    """

    delete_file_id: int
    path: str
    delete_count: int
    begin_snapshot: int
    end_snapshot: int | None
    partial_max: int | None
    file_size: int
    footer_size: int | None
    format: str = "parquet"
    encryption_key: str | None = None
    later: bool = False


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file with everything that a reader without the extension needs to know.

    Attributes:
        path: Absolute.
        row_id_start: Row id of its first row, unless it carries row ids itself.
        partition_values: One for each key of the spec it was written with; None for NULL, and for one that is missing.
        mapping_id: The name mapping it is read through, if any.
        partial_max: Set when it holds rows of several snapshots, the newest of which is this one.
        deletes: The delete files that hold at the snapshot: one at most, but in a broken lake, where all of them count.
        inlined_deletes: How many more rows are deleted in the catalog itself.
        schema_version: The version of the table's schema that it was written with.
    """

    data_file_id: int
    path: str
    file_size: int
    footer_size: int | None
    record_count: int
    begin_snapshot: int
    row_id_start: int | None
    partition_id: int | None
    partition_values: tuple[str | None, ...]
    mapping_id: int | None
    partial_max: int | None
    encryption_key: str | None
    schema_version: int
    deletes: tuple[DeleteFile, ...] = ()
    inlined_deletes: int = 0


@dataclass(frozen=True, slots=True)
class NewDeleteFile:
    """A finished delete file; it names all deleted positions of its data file, and takes the place of what did before.

    Attributes:
        data_file: The data file, as it was when its deletions were worked out.
        begin_snapshot: The first of the snapshots that its rows were deleted with.
        end_snapshot: The one that retires the data file, if one does.
        partial_max: The last of the snapshots that its rows were deleted with, where they are several.
    """

    data_file: DataFile
    path: str
    delete_count: int
    file_size: int
    footer_size: int | None
    begin_snapshot: int
    end_snapshot: int | None = None
    partial_max: int | None = None
