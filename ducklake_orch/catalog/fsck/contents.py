"""Read the contents of the lake's files into the copy: real statistics, partition values and deleted positions."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ducklake_orch.catalog.fsck.footers import for_each, read_footers
from ducklake_orch.catalog.fsck.local_copy import LocalCopy
from ducklake_orch.catalog.metadata import ColumnDef, duckdb_type, stored_name
from ducklake_orch.catalog.parquet import FileColumn, file_columns, key_sql, renamed
from ducklake_orch.engine.quoting import file_literals, identifier, literal

# Types without an order that bounds could follow, or whose bounds the engine does not use.
_UNBOUND = ("HUGEINT", "UHUGEINT", "TIME WITH TIME ZONE", "INTERVAL", "GEOMETRY", "VARIANT", "BLOB")


@dataclass(frozen=True)
class Leaf:
    """A column that holds values, as SQL over a file.

    Attributes:
        column_id: Its column id in the table.
        sql: Its value in a row, or the list of its values.
        many: Whether a row has a list of values.
        type: Its DuckDB type.
    """

    column_id: int
    sql: str
    many: bool
    type: str

    @property
    def facts(self) -> str:
        """The real statistics of a file, as an aggregate: (id, least, greatest, values, NULLs, NaN)."""
        least, most = self._least("min"), self._least("max")
        number = self.type in ("FLOAT", "DOUBLE")
        nan = f"list_contains({self.sql}, 'nan'::{self.type})" if self.many else f"isnan({self.sql})"
        if self.many:
            count, nulls = f"sum(list_count({self.sql}))", "NULL"
        else:
            count, nulls = f"count({self.sql})", f"count(*) - count({self.sql})"
        return (
            f"{{id: {self.column_id}, least: {least}, most: {most}, vals: ({count})::BIGINT, nulls: ({nulls})::BIGINT,"
            f" nan: {f'coalesce(bool_or({nan}), false)' if number else 'NULL::BOOLEAN'}}}"
        )

    def _least(self, function: str) -> str:
        if self.type in _UNBOUND:
            return "NULL::VARCHAR"
        # NaN is greater than all numbers and must not become a bound.
        number, values = self.type in ("FLOAT", "DOUBLE"), self.sql
        if self.many:
            values = f"list_filter({values}, lambda x: NOT isnan(x))" if number else values
            return f"{function}(list_{function}({values}))::VARCHAR"
        not_nan = f" FILTER (NOT isnan({values}))" if number else ""
        return f"({function}({values}){not_nan})::VARCHAR"


def read_contents(copy: LocalCopy) -> None:
    """Read the live data files, ended ones whose numbers differ from the catalog's, and all Parquet delete files.

    Fills `real_stats`, `real_partition` and `real_delete`.
    """
    mappings = _mappings(copy)
    keys = _partition_keys(copy)
    groups = copy.con.execute("""
        SELECT columns, f.mapping_id, f.partition_id, list(p.full_path)
        FROM ducklake_data_file f JOIN data_path_of p ON p.id = f.data_file_id
        JOIN footer ON footer.path = p.full_path
        WHERE columns IS NOT NULL AND (f.end_snapshot IS NULL OR f.file_size_bytes <> footer.file_size
              OR f.footer_size <> footer.footer_size OR f.record_count <> footer.record_count)
        GROUP BY ALL""").fetchall()
    for columns, mapping_id, partition_id, paths in groups:
        tree = file_columns(columns)
        leaves = list(_by_name(tree, mappings[mapping_id]) if mapping_id in mappings else _by_id(tree))
        if leaves:
            sql, names = _values_sql(leaves, keys.get(partition_id, [])), renamed(tree)
            for_each(
                copy.con,
                copy.config,
                list(dict.fromkeys(paths)),
                lambda batch, sql=sql, names=names: _read_values(copy, batch, sql, names),  # type: ignore[misc]
            )
    _read_deletes(copy)


def read_shared_deletes(copy: LocalCopy) -> None:
    """Read only the delete files that share a data file with another one: those that a repair merges."""
    read_footers(copy, "what = 'delete file' AND p.data_file_id IN (SELECT data_file_id FROM shared_delete)")
    _read_deletes(copy)


def _by_id(columns: Sequence[FileColumn]) -> Iterator[Leaf]:
    for column in columns:
        for leaf, sql, many in _leaves(column, identifier(stored_name(column.name)), False):
            # The engine's own columns have ids above all others.
            if leaf.field_id is not None and leaf.field_id < 2**31 - 1000:
                yield Leaf(leaf.field_id, sql, many, leaf.type)


def _leaves(column: FileColumn, sql: str, many: bool) -> Iterator[tuple[FileColumn, str, bool]]:
    """Return the columns that hold values, with the SQL that reads them."""
    for child, inner, in_list in _inside(column, sql, many):
        yield from _leaves(child, inner, in_list)
    if not column.children:
        yield column, sql, many


def _inside(column: FileColumn, sql: str, many: bool) -> Iterator[tuple[FileColumn, str, bool]]:
    """Return the direct children of a column."""
    match column.type:
        case "LIST":
            yield column.children[0], f"flatten({sql})" if many else sql, True
        case "MAP":
            for child, function in zip(column.children, ("map_keys", "map_values"), strict=True):
                inner = f"flatten(list_transform({sql}, lambda x: {function}(x)))" if many else f"{function}({sql})"
                yield child, inner, True
        case "STRUCT":
            for child in column.children:
                name = literal(child.name)
                part = f"list_transform({sql}, lambda x: struct_extract(x, {name}))"
                yield child, part if many else f"struct_extract({sql}, {name})", many


# Column names in files without field ids: the name in the file gives the column id and the names of its children.
Names = dict[str, tuple[int, Any]]


def _mappings(copy: LocalCopy) -> dict[int, Names]:
    rows = copy.con.execute("""
        SELECT mapping_id, column_id, source_name, target_field_id, parent_column FROM ducklake_name_mapping
        WHERE NOT coalesce(is_partition, false) ORDER BY column_id""").fetchall()
    inside: dict[tuple[int, int | None], list[Any]] = defaultdict(list)
    for mapping_id, column_id, name, target, parent in rows:
        inside[mapping_id, parent].append((column_id, name, target))

    def build(mapping_id: int, parent: int | None) -> Names:
        children = inside[mapping_id, parent]
        return {str(name).lower(): (int(target), build(mapping_id, column_id)) for column_id, name, target in children}

    return {mapping_id: build(mapping_id, None) for mapping_id in {int(row[0]) for row in rows}}


def _by_name(columns: Sequence[FileColumn], names: Names) -> Iterator[Leaf]:
    for column in columns:
        if (known := names.get(column.name.lower())) is not None:
            yield from _named_leaves(column, identifier(stored_name(column.name)), False, known)


def _named_leaves(column: FileColumn, sql: str, many: bool, known: tuple[int, Names]) -> Iterator[Leaf]:
    target, names = known
    if not column.children:
        yield Leaf(target, sql, many, column.type)
        return
    # Lists and maps are matched by position: writers give their groups in the file any name.
    by_position: list[Any] = list(names.values())
    for n, (child, inner, in_list) in enumerate(_inside(column, sql, many)):
        if column.type == "STRUCT":
            child_names = names.get(child.name.lower())
        else:
            child_names = by_position[n] if n < len(by_position) else None
        if child_names is not None:
            yield from _named_leaves(child, inner, in_list, child_names)


@dataclass(frozen=True)
class _Key:
    """A partition key: its index in the spec, its column id and transform, and the column's type in the catalog."""

    index: int
    column_id: int
    transform: str
    type: str

    def sql(self, leaf: Leaf) -> str:
        """Return the key of a row of a file."""
        # Files store these types as others, which have different buckets.
        if self.type in ("int128", "uint128", "timestamp_s", "timestamp_ms"):
            kind = duckdb_type(ColumnDef(self.column_id, "", self.type, nullable=True))
            return key_sql(self.transform, f"TRY_CAST({leaf.sql} AS {kind})", kind)
        return key_sql(self.transform, leaf.sql, leaf.type)


def _partition_keys(copy: LocalCopy) -> dict[int, list[_Key]]:
    rows = copy.con.execute("""
        SELECT partition_id, partition_key_index, column_id, transform, coalesce(column_type, '')
        FROM ducklake_partition_column JOIN ducklake_partition_info USING (partition_id)
        LEFT JOIN leaf USING (table_id, column_id)""").fetchall()
    keys: dict[int, list[_Key]] = defaultdict(list)
    for partition_id, index, column_id, transform, kind in rows:
        keys[int(partition_id)].append(_Key(int(index), int(column_id), str(transform), str(kind)))
    return keys


def _values_sql(leaves: Sequence[Leaf], keys: Sequence[_Key]) -> str:
    by_id: Mapping[int, Leaf] = {leaf.column_id: leaf for leaf in leaves if not leaf.many}
    parts = []
    for key in keys:
        if key.column_id in by_id:
            value = key.sql(by_id[key.column_id])
            ends = f"least: min({value})::VARCHAR, most: max({value})::VARCHAR"
            parts.append(f"{{key: {key.index}, {ends}, nulls: (count(*) - count({value}))::BIGINT}}")
    stats = f"[{', '.join(leaf.facts for leaf in leaves)}] AS stats"
    empty = "NULL::STRUCT(key INTEGER, least VARCHAR, most VARCHAR, nulls BIGINT)[]"
    return f"{stats}, {f'[{chr(44).join(parts)}]' if parts else empty} AS keys"


def _read_values(copy: LocalCopy, paths: Sequence[str], sql: str, names: str) -> None:
    files = file_literals(paths)
    source = f"read_parquet([{files}], hive_partitioning = false) AS {names}"
    copy.con.execute(
        "CREATE OR REPLACE TEMP TABLE facts AS SELECT p.id, q.* EXCLUDE (path)"
        f" FROM (SELECT filename AS path, {sql} FROM {source} GROUP BY ALL) q"
        " JOIN data_path_of p ON p.full_path = q.path"
    )
    copy.con.execute(
        "INSERT INTO real_stats SELECT id, s.id, s.least, s.most, s.vals, s.nulls, s.nan"
        " FROM (SELECT id, unnest(stats) AS s FROM facts)"
    )
    copy.con.execute(
        "INSERT INTO real_partition SELECT id, k.key, k.least, k.most, k.nulls"
        " FROM (SELECT id, unnest(keys) AS k FROM facts)"
    )


def _read_deletes(copy: LocalCopy) -> None:
    paths = copy.con.execute("""
        SELECT DISTINCT p.full_path FROM known_path p JOIN footer ON footer.path = p.full_path
        WHERE p.what = 'delete file' AND footer.columns IS NOT NULL""").fetchall()
    for_each(copy.con, copy.config, [str(row[0]) for row in paths], lambda batch: _read_positions(copy, batch))


def _read_positions(copy: LocalCopy, paths: Sequence[str]) -> None:
    files = file_literals(paths)
    copy.con.execute(f"""
        INSERT INTO real_delete
        SELECT d.id, count(*), min(pos), max(pos), count(*) FILTER (pos <= before),
               max(file_path) FILTER (parse_filename(file_path) <> parse_filename(f.full_path)), count(i.row_id)
        FROM (SELECT filename AS path, file_path, pos,
                     lag(pos) OVER (PARTITION BY filename ORDER BY file_row_number) AS before
              FROM read_parquet([{files}], hive_partitioning = false)) q
        JOIN known_path d ON d.what = 'delete file' AND d.full_path = q.path
        LEFT JOIN data_path_of f ON f.id = d.data_file_id
        LEFT JOIN (SELECT DISTINCT file_id, row_id FROM inlined_delete) i
                  ON i.file_id = d.data_file_id AND i.row_id = q.pos
        GROUP BY d.id""")
