"""Find, inside the commit, the rows that a change retires among the data files and inlined rows that are then live.

The entry point is `find_retired`.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from ducklake_orch.catalog.commit import conflicts
from ducklake_orch.catalog.commit.table_change import (
    Everything,
    ExactRows,
    Matching,
    Partitions,
    Rollback,
    TableChange,
)
from ducklake_orch.catalog.metadata import (
    DataFile,
    MetadataTransaction,
    TableDef,
    TableHistory,
    count_sql,
    deletions_sql,
    deletions_table,
    duckdb_type,
    inlined_rows,
    table_exists,
)
from ducklake_orch.catalog.parquet import OWN_FILES, depends_on_zone, key_sql
from ducklake_orch.catalog.scan import classify, parse_predicate
from ducklake_orch.engine.quoting import identifier, literal
from ducklake_orch.errors import TerminalError

Key = tuple[str | None, ...]
_INTEGERS = {f"{sign}{size}INT" for sign in ("", "U") for size in ("TINY", "SMALL", "BIG")} | {"INTEGER", "UINTEGER"}


class NotAlignedError(TerminalError):
    """A data file may hold both rows to retire and rows to keep, so the caller must find the rows one by one."""


@dataclass(frozen=True)
class Retired:
    """The files and inlined rows that a change retires.

    Attributes:
        all_files: Whether all live files of the table are retired; `file_ids` is then empty.
        file_ids: Ids of the data files to retire.
        file_count: The number of data files to retire.
        rows: The number of live rows to retire, in files and inlined.
        inlined: The row ids to retire, by inlined-data table; None stands for all rows of that table.
    """

    all_files: bool = False
    file_ids: Sequence[int] = ()
    file_count: int = 0
    rows: int = 0
    inlined: Mapping[str, Sequence[int] | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.file_count or self.inlined)


def find_retired(transaction: MetadataTransaction, change: TableChange, table: TableDef) -> Retired:
    """Return the files and rows of the current table that a change retires.

    Raises:
        NotAlignedError: When a data file may hold both rows to retire and rows to keep.
    """
    match change.remove:
        case Everything():
            return _everything(transaction, table)
        case Partitions(keys):
            return _partitions(transaction, with_types_of_keys(table, change), keys)
        case Matching(where):
            return _with_inlined(transaction, table, where, _whole_files(transaction, table, where))
        case ExactRows() as exact:
            ids = [file.data_file_id for file in exact.whole]
            inlined = {name: row_ids for name, row_ids in exact.inlined.items() if row_ids}
            return Retired(False, ids, len(ids), exact.rows, inlined)
        case Rollback() as back:
            ids = [file.data_file_id for file in back.files]
            return Retired(False, ids, len(ids), back.rows, back.inlined)
    return Retired()


def _everything(transaction: MetadataTransaction, table: TableDef) -> Retired:
    metadata = transaction.metadata
    files, rows = _count(transaction, table, None)
    inlined: dict[str, Sequence[int] | None] = {}
    for inlined_table in table.inlined:
        if table_exists(metadata, inlined_table.name):
            count = metadata.rows(count_sql(metadata, inlined_table, transaction.latest.snapshot_id))[0][0]
            if count:
                inlined[inlined_table.name] = None
                rows += int(count)
    return Retired(True, (), files, rows, inlined)


def _files_with_ids(transaction: MetadataTransaction, table: TableDef, ids: Sequence[int]) -> Retired:
    if not ids:
        return Retired()
    files, rows = _count(transaction, table, ids)
    return Retired(False, tuple(ids), files, rows)


def _count(transaction: MetadataTransaction, table: TableDef, ids: Sequence[int] | None) -> tuple[int, int]:
    """Return the number of live data files and of their live rows; None for `ids` stands for all files."""
    metadata = transaction.metadata
    chosen = "" if ids is None else f" AND data_file_id IN ({', '.join(map(str, ids))})"
    live = f"table_id = {table.table_id} AND end_snapshot IS NULL{chosen}"
    deletes = f"SELECT data_file_id, delete_count FROM {metadata.table_sql('ducklake_delete_file')} WHERE {live}"
    files, rows = metadata.rows(f"""
        SELECT count(*), coalesce(sum(f.record_count - coalesce(d.delete_count, 0)), 0)
        FROM (SELECT * FROM {metadata.table_sql("ducklake_data_file")} WHERE {live}) f
        LEFT JOIN ({deletes}) d USING (data_file_id)""")[0]
    if (deletions := deletions_table(metadata, table)) is not None:
        of_live = f"SELECT data_file_id FROM {metadata.table_sql('ducklake_data_file')} WHERE {live}"
        deleted = deletions_sql(metadata, deletions, transaction.latest.snapshot_id)
        rows -= metadata.rows(f"SELECT count(*) FROM ({deleted}) WHERE data_file_id IN ({of_live})")[0][0]
    return int(files), int(rows)


def file_states(
    transaction: MetadataTransaction, table: TableDef, files: Sequence[DataFile]
) -> dict[int, conflicts.FileState]:
    """Return the deletions of those of the given files that are live, by data file id."""
    metadata = transaction.metadata
    live = f"end_snapshot IS NULL AND data_file_id IN ({', '.join(str(file.data_file_id) for file in files)})"
    inlined = "SELECT NULL::BIGINT AS data_file_id, 0 AS count"
    if (deletions := deletions_table(metadata, table)) is not None:
        deleted = deletions_sql(metadata, deletions, transaction.latest.snapshot_id)
        inlined = f"SELECT data_file_id, count(*) AS count FROM ({deleted}) GROUP BY data_file_id"
    rows = metadata.rows(f"""
        SELECT f.data_file_id, d.ids, coalesce(i.count, 0)
        FROM (SELECT data_file_id FROM {metadata.table_sql("ducklake_data_file")} WHERE {live}) f
        LEFT JOIN (SELECT data_file_id, list(delete_file_id ORDER BY delete_file_id) AS ids
                   FROM {metadata.table_sql("ducklake_delete_file")} WHERE {live} GROUP BY data_file_id) d
            USING (data_file_id)
        LEFT JOIN ({inlined}) i USING (data_file_id)""")
    return {int(row[0]): (tuple(map(int, row[1] or ())), int(row[2])) for row in rows}


def _partitions(transaction: MetadataTransaction, table: TableDef, keys: frozenset[Key]) -> Retired:
    """Retire whole partitions.

    These are the data files of the table's current spec with the partitions' keys, and all other files and inlined rows
    that hold rows of the partitions.
    """
    where = partitions_condition(table, keys)
    types = [
        set(TableHistory(transaction.metadata, table).types[key_field.column_id])
        for key_field in table.key_fields
        if key_field.transform == "identity"
    ]
    if any(len(past_types) > 1 and not past_types <= _INTEGERS for past_types in types):
        # The catalog stores a key as text of the type that the column had when the file was written. Of all types that
        # can be promoted, only integers keep the same text.
        return _with_inlined(transaction, table, where, _whole_files(transaction, table, where))
    ids, unclear = files_of_partitions(transaction, table, keys)
    if unclear:
        ids += _whole_files(transaction, table, where, among=unclear)
    return _with_inlined(transaction, table, where, ids)


def files_of_partitions(
    transaction: MetadataTransaction, table: TableDef, keys: frozenset[Key], *, ended: bool = False
) -> tuple[list[int], set[int]]:
    """Return the files with the given keys of the table's spec, and files whose keys do not prove which rows they hold.

    The keys do not tell for a file that was written before the spec changed, for a file of a program that computes days
    in an unknown time zone, and for a file whose keys are missing or are no values of their columns. Only statistics
    tell what such a file holds.

    Args:
        transaction: The commit.
        table: The table.
        keys: The partition keys.
        ended: Whether to include files that are already retired.
    """
    metadata, spec, fields = transaction.metadata, table.partition, table.key_fields
    assert spec is not None  # noqa: S101 - where there are keys there is a spec
    kinds = [
        duckdb_type(table.column(key_field.column_id)) if key_field.transform == "identity" else "BIGINT"
        for key_field in fields
    ]
    of_table = f"WHERE table_id = {table.table_id} AND"
    values = (
        f"SELECT data_file_id, partition_value FROM {metadata.table_sql('ducklake_file_partition_value')} {of_table}"
    )
    joins = " ".join(
        f"LEFT JOIN ({values} partition_key_index = {n}) k{n} USING (data_file_id)" for n in range(len(kinds))
    )
    # Compare the keys as values of their columns, because writers format the same value as different texts.
    texts = [_same_text(f"k{n}.partition_value", kind) for n, kind in enumerate(kinds)]
    wanted = ", ".join(
        f"[{', '.join(_same_text(f'{literal(value)}::VARCHAR', kind) for value, kind in zip(key, kinds, strict=True))}]"
        for key in keys
    )
    zoned = [(n, key_field) for n, key_field in enumerate(fields) if depends_on_zone(table, key_field)]
    statistics = metadata.table_sql("ducklake_file_column_stats")
    for n, key_field in zoned:
        of_column = f"SELECT * FROM {statistics} {of_table} column_id = {key_field.column_id}"
        joins += f" LEFT JOIN ({of_column}) s{n} USING (data_file_id)"
    clear = [f"partition_id IS NOT DISTINCT FROM {spec.partition_id}"]
    if zoned:
        proofs = " AND ".join(_proof(n, key_field.transform) for n, key_field in zoned)
        clear.append(f"(f.path LIKE {literal(OWN_FILES)} OR coalesce({proofs}, false))")
    clear += [
        f"k{n}.data_file_id IS NOT NULL AND (k{n}.partition_value IS NULL OR {text} IS NOT NULL)"
        for n, text in enumerate(texts)
    ]
    rows = metadata.rows(f"""
        SELECT data_file_id, {" AND ".join(clear)} AS clear
        FROM (SELECT * FROM {metadata.table_sql("ducklake_data_file")}
              {of_table} {"true" if ended else "end_snapshot IS NULL"}) f {joins}
        WHERE NOT clear OR [{", ".join(texts)}] IN ({wanted})""")
    return [int(row[0]) for row in rows if row[1]], {int(row[0]) for row in rows if not row[1]}


def _same_text(value: str, kind: str) -> str:
    """Return the SQL for the canonical text of a partition value, which is the same for every writer."""
    typed = f"TRY_CAST({value} AS {kind})"
    if kind in ("FLOAT", "DOUBLE"):  # -0.0 and 0.0 are one partition, and so are NaNs of either sign
        cases = " ".join(
            f"WHEN CAST('{special}' AS {kind}) THEN CAST('{special}' AS {kind})" for special in ("0", "nan")
        )
        typed = f"CASE {typed} {cases} ELSE {typed} END"
    return value if kind == "VARCHAR" else f"CAST({typed} AS VARCHAR)"


def _proof(n: int, unit: str) -> str:
    """Return the condition under which all values of a file have, in UTC, the date part that the file's key says."""
    low, high = (f"TRY_CAST(s{n}.{end}_value AS TIMESTAMPTZ)" for end in ("min", "max"))
    same = f"TRY(date_trunc('{unit}', {low})) = TRY(date_trunc('{unit}', {high}))"
    matches = f"{same} AND TRY({unit}({low})) = TRY_CAST(k{n}.partition_value AS BIGINT) AND s{n}.null_count = 0"
    # A NULL key needs no proof: NULL and infinity have no date parts in any time zone.
    return f"(k{n}.partition_value IS NULL OR {matches})"


def with_types_of_keys(table: TableDef, change: TableChange) -> TableDef:
    """Return the current table with the columns that the partition keys of a change have values of.

    A change that promotes a column has keys that the current type may not hold.
    """
    return replace(table, columns=change.target.columns)


def partitions_condition(table: TableDef, keys: frozenset[Key]) -> str:
    """Return the SQL condition for the rows of the partitions with the given keys."""
    return " OR ".join(f"({_key_condition(table, key)})" for key in keys)


def _key_condition(table: TableDef, key: Key) -> str:
    """Return the SQL condition for the rows of one partition."""
    parts = []
    for key_field, value in zip(table.key_fields, key, strict=True):
        column = table.column(key_field.column_id)
        kind = duckdb_type(column)
        wanted = f"CAST({literal(value)} AS {kind if key_field.transform == 'identity' else 'BIGINT'})"
        parts.append(f"{key_sql(key_field.transform, identifier(column.name), kind)} IS NOT DISTINCT FROM {wanted}")
    return " AND ".join(parts)


def _whole_files(
    transaction: MetadataTransaction, table: TableDef, where: str, *, among: Set[int] | None = None
) -> list[int]:
    """Return the files all of whose rows match.

    Raises:
        NotAlignedError: When a file may hold both rows that match and rows that do not.
    """
    whole = []
    for file, all_match in classify(transaction.metadata, table, transaction.latest.snapshot_id, where):
        if among is not None and file.data_file_id not in among:
            continue
        if not all_match:
            raise NotAlignedError(f"{file.path} may hold both rows that match `{where}` and rows that do not.")
        whole.append(file.data_file_id)
    return whole


def _with_inlined(transaction: MetadataTransaction, table: TableDef, where: str, ids: Sequence[int]) -> Retired:
    """Return the given files and the inlined rows that match the condition."""
    metadata, at = transaction.metadata, transaction.latest.snapshot_id
    retired = _files_with_ids(transaction, table, ids)
    if not table.inlined:
        return retired
    predicate = parse_predicate(metadata.con, where, table.columns)
    matching = dict[str, Sequence[int]]()
    for query in inlined_rows(TableHistory(metadata, table), at, table.columns):
        rows = metadata.rows(f"SELECT {query.row_id} FROM ({query.sql}) WHERE {predicate.sql}")
        if rows:
            matching[query.table] = [int(row[0]) for row in rows]
    return replace(retired, rows=retired.rows + sum(map(len, matching.values())), inlined=matching)
