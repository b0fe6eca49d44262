"""Model the contents of the metadata tables as frozen dataclasses: a table at one snapshot, its files, statistics."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ducklake_orch.catalog.metadata.lake_mark import file_prefix
from ducklake_orch.engine.quoting import TableName

# The engine's names for the columns, in data files, of a row's id and of the snapshot that added it.
ROW_ID, SNAPSHOT_ID = "_ducklake_internal_row_id", "_ducklake_internal_snapshot_id"
# Parquet field ids of the columns that the engine itself adds to files.
ROW_ID_FIELD = 2147483540
SNAPSHOT_ID_FIELD = 2147483539
DELETED_PATH_FIELD = 2147483646
DELETED_POS_FIELD = 2147483645


@dataclass(frozen=True, slots=True)
class View:
    """A view: its name, its query, and the names that it gives to columns, as DuckDB stores them."""

    name: TableName
    sql: str
    aliases: str


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """A snapshot with the counters that the next commit continues.

    Attributes:
        read_at: When it was read, in microseconds, by the catalog's clock if it has one.
    """

    snapshot_id: int
    schema_version: int
    next_catalog_id: int
    next_file_id: int
    read_at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """A column at one snapshot, with its nested columns.

    Attributes:
        column_id: The column's permanent identity, which is also its field id in Parquet.
        name: The column's name at the snapshot.
        type: DuckLake's type name: `int32`, `decimal(10,2)`, `list`.
        nullable: Whether the column may contain NULL.
        initial_default: The value, as text, of rows in files that were written before the column existed.
        default: The value of a new row that does not name the column: a literal as text, or an expression.
        default_type: `literal` or `expression`; empty for nested columns.
        children: The nested columns.
        comment: The column's comment.
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
        """Return the columns that hold values: the column itself, or its nested leaves; only these have statistics."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()


@dataclass(frozen=True, slots=True)
class ColumnVersion:
    """A column as it was from one snapshot to another, without its nested columns."""

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
    """A partition spec: the keys by which a table's files are laid out; an unpartitioned table has none."""

    partition_id: int
    fields: tuple[PartitionField, ...]


@dataclass(frozen=True, slots=True)
class SortKey:
    """One key of a sort spec."""

    expression: str
    direction: str
    nulls: str

    @property
    def order(self) -> str:
        """What follows the expression in ORDER BY."""
        return f"{self.direction} {self.nulls.replace('_', ' ')}"

    @property
    def sql(self) -> str:
        """The key in ORDER BY."""
        return f"{self.expression} {self.order}"


@dataclass(frozen=True, slots=True)
class InlinedTable:
    """An inlined-data table: a table in the metadata database that holds the inlined rows of one schema version."""

    name: str
    schema_version: int


@dataclass(frozen=True, slots=True)
class TableDef:
    """A table at one snapshot.

    Attributes:
        folder: The absolute path of the folder of its files, with a closing slash.
        data_path: The root of the lake's files, to which other paths are relative.
        columns: Its top-level columns at the snapshot.
        partition: Its partition spec at the snapshot.
        sort: Its sort keys at the snapshot.
        schema_versions: The first snapshot of each version of its schema, as (snapshot, version), oldest first.
        inlined: Its inlined-data tables.
        options: The persisted options that apply to it.
        encrypted: Whether its files are encrypted.
        lake_mark: The mark of its lake, which is part of the names of the lake's files.
        past_columns: Every version that its columns have had, the current ones included.
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

    @property
    def key_fields(self) -> tuple[PartitionField, ...]:
        """The partition keys; none if the table is not partitioned."""
        return self.partition.fields if self.partition else ()

    @property
    def comments(self) -> dict[int, str | None]:
        """The comments of the top-level columns, by id."""
        return {column.column_id: column.comment for column in self.columns}

    def file_prefix(self, write_id: str) -> str:
        """Return the prefix of the names of all files that a write creates for this table."""
        return file_prefix(write_id, self.lake_mark)

    def column(self, column_id: int) -> ColumnDef:
        """Return the top-level column with an id, also one that does not exist at the snapshot but before or after."""
        current = next((column for column in self.columns if column.column_id == column_id), None)
        return current or next(
            column.column for column in reversed(self.past_columns) if column.column.column_id == column_id
        )

    def leaves(self) -> dict[int, ColumnDef]:
        """Return the columns that hold values, by id."""
        return {leaf.column_id: leaf for column in self.columns for leaf in column.leaves()}


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Statistics of a column in a file, as the catalog stores them; bounds are texts, and are inexact for long strings.

    Attributes:
        size_bytes: The compressed size of the column.
        value_count: The number of values that are not NULL.
        null_count: The number of NULLs.
        min_value: A lower bound; None if there is none or it is unknown.
        max_value: An upper bound; None if there is none or it is unknown.
        contains_nan: Whether a value is NaN; None if the type has no NaN or it is unknown.
        extra: Further statistics of a geometry or a variant, as JSON.
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
    """The name that a column of the table has in files without field ids.

    Attributes:
        source: The name in the file.
        column_id: The column of the table.
        is_partition: Whether the value comes from the `key=value` folders of the file's path.
        children: The names of its nested columns.
    """

    source: str
    column_id: int
    is_partition: bool = False
    children: tuple["MappedName", ...] = ()


@dataclass(frozen=True, slots=True)
class NewFile:
    """A finished Parquet file that is not in the lake yet.

    Attributes:
        path: The absolute path.
        partition_values: One value for each key of the table's partition spec; None for NULL.
        stats: Statistics by column id; a column that is missing has none.
        variants: Statistics of shredded fields of variants.
        mapping: The names of its columns, if it has no field ids that can be trusted.
        outside: Whether it lies outside the table's folder.
        has_row_ids: Whether its rows were in the lake before and the file contains their existing row ids.
        encryption_key: The key of an encrypted file, as Base64.
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
    encryption_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """The delete file of a data file; it contains all deleted positions, those of the previous delete file included.

    Attributes:
        path: The absolute path.
        partial_max: The newest snapshot of its deletions, if they come from several snapshots. It is None for a file
            that the engine flushed from the catalog, although that file has the snapshot of each deletion.
        format: `parquet`, or `puffin` for deletion vectors.
        positions: The positions in a deletion vector, once `read_vectors` has read it.
        later: Whether it was written after the requested snapshot. Some of its deletions may then be later, too; its
            column `_ducklake_internal_snapshot_id`, if it has one, tells which.
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
    encryption_key: str | None = field(default=None, repr=False)
    later: bool = False
    positions: tuple[int, ...] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file at a snapshot, with everything that a reader without the extension needs to know.

    Attributes:
        path: The absolute path.
        row_id_start: Row id of its first row, unless the file itself contains row ids.
        partition_values: One value for each key of the spec that it was written with; None for NULL or a missing value.
        mapping_id: Id of the name mapping to read it with, if any.
        partial_max: The newest snapshot of its rows, if they come from several snapshots; else None.
        schema_version: The version of the table's schema that it was written with.
        deletes: The delete files that apply at the snapshot. There is at most one, except in a corrupt lake, where all
            of them apply.
        inlined_deletes: The number of its inlined deletions, which are in addition to those in `deletes`.
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
    encryption_key: str | None = field(repr=False)
    schema_version: int
    deletes: tuple[DeleteFile, ...] = ()
    inlined_deletes: int = 0


def unnumbered(file: NewFile) -> DataFile:
    """Return a file that has no id yet as a data file of a table."""
    return DataFile(
        data_file_id=0,
        path=file.path,
        file_size=file.file_size,
        footer_size=file.footer_size,
        record_count=file.record_count,
        begin_snapshot=0,
        row_id_start=None,
        partition_id=None,
        partition_values=(),
        mapping_id=None,
        partial_max=None,
        encryption_key=file.encryption_key,
        schema_version=0,
    )


@dataclass(frozen=True, slots=True)
class NewDeleteFile:
    """A finished delete file; it contains all deleted positions of its data file and replaces the earlier deletions.

    Attributes:
        data_file: The data file, as it was when the deletions were planned.
        begin_snapshot: The first snapshot that deleted one of its rows.
        end_snapshot: The snapshot that retires the data file, if any.
        partial_max: The last snapshot that deleted one of its rows, if several snapshots did.
    """

    data_file: DataFile
    path: str
    delete_count: int
    file_size: int
    footer_size: int | None
    begin_snapshot: int
    end_snapshot: int | None = None
    partial_max: int | None = None
    encryption_key: str | None = field(default=None, repr=False)
