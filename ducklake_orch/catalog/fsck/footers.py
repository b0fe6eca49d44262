"""Read the footers of the lake's files into the copy: whether the files exist, their sizes and their columns."""

from collections.abc import Callable, Iterator, Sequence, Set

import duckdb

from ducklake_orch.catalog.fsck.local_copy import LocalCopy
from ducklake_orch.catalog.metadata import ROW_ID_FIELD, ColumnDef
from ducklake_orch.catalog.parquet import FileColumn, file_columns, holds
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.error_classes import classify
from ducklake_orch.engine.quoting import file_literal, file_literals, literal
from ducklake_orch.errors import AuthenticationError, TransientError

FILES_AT_ONCE = 250
# How each storage reports that an object does not exist.
_ABSENT = (
    "No files found that match",
    "No such file",
    "HTTP 404",
    "(404",
    "BlobNotFound",
    "specified blob does not exist",
)
_LOAD = """
    INSERT INTO footer
    SELECT f.file_name, f.num_rows, f.file_size_bytes, f.footer_size,
           list_transform(parquet_schema, lambda s: {{
               name: s.name, type: s.type, repetition_type: s.repetition_type, num_children: s.num_children,
               converted_type: s.converted_type, logical_type: s.logical_type, field_id: s.field_id,
               duckdb_type: s.duckdb_type}})
    FROM (SELECT parquet_file_metadata[1] AS f, parquet_schema FROM parquet_full_metadata([{paths}]))"""


_VARIANTS = "SELECT DISTINCT column_id FROM ducklake_column WHERE column_type = 'variant'"
# Types that Parquet or DuckDB lacks: DuckDB stores 128-bit integers as DOUBLE, and variants and geometries in parts.
_STORED_OTHERWISE = ("int128", "uint128", "variant", "geometry", "null", "timestamptz_ns")


def read_footers(copy: LocalCopy, which: str = "true") -> None:
    """Read the footers of the files in the catalog, live or ended; fills `footer`, `unreadable` and `nesting`.

    Args:
        copy: The copy of the catalog.
        which: A condition on the files.
    """
    con = copy.con
    readable = f"FROM known_path p JOIN known_file k USING (what, id) WHERE {which} AND full_path IS NOT NULL AND"
    paths = con.execute(f"SELECT DISTINCT full_path {readable} k.encryption_key IS NULL AND k.format = 'parquet'")
    for_each(con, copy.config, [str(row[0]) for row in paths.fetchall()], lambda batch: con.execute(_load(batch)))
    for path, key in con.execute(
        f"SELECT full_path, any_value(k.encryption_key) {readable} k.encryption_key IS NOT NULL GROUP BY 1"
    ).fetchall():
        for_each(con, copy.config, [str(path)], lambda batch, key=key: _count_encrypted(con, batch[0], str(key)))  # type: ignore[misc]
    con.execute(
        "INSERT INTO surely_numbered SELECT p.data_file_id FROM known_path p JOIN footer ON footer.path = p.full_path"
        f" WHERE p.what = 'data file' AND NOT has_field(footer.columns, {ROW_ID_FIELD})"
    )
    _record_nesting(con)
    _record_narrowed(con)


def for_each(
    con: duckdb.DuckDBPyConnection, config: LakeConfig, paths: Sequence[str], work: Callable[[Sequence[str]], object]
) -> None:
    """Apply `work` to files in batches; files for which it fails are recorded in `unreadable`.

    Raises:
        DuckLakeOrchError: When the storage itself fails, so that the state of a file is unknown.
    """
    for start in range(0, len(paths), FILES_AT_ONCE):
        _halving(con, config, paths[start : start + FILES_AT_ONCE], work)


def _halving(
    con: duckdb.DuckDBPyConnection, config: LakeConfig, paths: Sequence[str], work: Callable[[Sequence[str]], object]
) -> None:
    try:
        work(paths)
        return
    except duckdb.Error as error:
        failure = classify(error, config, "Reading files of the lake failed")
    if isinstance(failure, TransientError | AuthenticationError):
        raise failure
    if len(paths) > 1:
        for half in (paths[: len(paths) // 2], paths[len(paths) // 2 :]):
            _halving(con, config, half, work)
        return
    absent = any(words in failure.message for words in _ABSENT)
    reason = failure.message.removeprefix("Reading files of the lake failed: ").splitlines()[0]
    con.execute(f"INSERT INTO unreadable VALUES ({literal(paths[0])}, {literal(absent)}, {literal(reason)})")


def _load(paths: Sequence[str]) -> str:
    return _LOAD.format(paths=file_literals(paths))


def _count_encrypted(con: duckdb.DuckDBPyConnection, path: str, key: str) -> None:
    """Record an encrypted file: its footer can only be read with the key, so its rows are counted instead."""
    name = file_literal(path)
    con.execute(f"""
        INSERT INTO footer SELECT {literal(path)},
            (SELECT count(*) FROM read_parquet({name}, encryption_config =
                {{footer_key_value: from_base64({literal(key)})}})),
            (SELECT max(size) FROM read_blob({name})), NULL, NULL""")


def _record_nesting(con: duckdb.DuckDBPyConnection) -> None:
    """Record the files whose nested columns lack field ids."""
    variants = {int(row[0]) for row in con.execute(_VARIANTS).fetchall()}
    shapes = con.execute("SELECT columns, list(path) FROM footer WHERE columns IS NOT NULL GROUP BY columns").fetchall()
    for columns, paths in shapes:
        known = [column for column in file_columns(columns) if column.field_id is not None]
        inside = sorted({name for column in known for name in _without_id(column, variants)})
        for path in paths if inside else ():
            con.execute(f"INSERT INTO nesting VALUES ({literal(path)}, {literal(', '.join(inside))})")


def _without_id(column: FileColumn, variants: Set[int]) -> list[str]:
    if column.field_id in variants and {"metadata", "value"} <= {child.name for child in column.children}:
        return []  # the parts of a variant have no ids
    missing = [column.name for child in column.children if child.field_id is None]
    return missing + [f"{column.name}.{name}" for child in column.children for name in _without_id(child, variants)]


def _record_narrowed(con: duckdb.DuckDBPyConnection) -> None:
    """Record the live files whose columns are wider than those of the table."""
    sql = "SELECT table_id, column_id, column_name, column_type FROM ducklake_column WHERE end_snapshot IS NULL"
    known = {(int(row[0]), int(row[1])): ColumnDef(row[1], row[2], row[3], True) for row in con.execute(sql).fetchall()}
    shapes = con.execute("""
        SELECT r.columns, p.table_id, list(r.path) FROM footer r JOIN known_path p ON p.full_path = r.path
        WHERE p.what = 'data file' AND p.end_snapshot IS NULL AND r.columns IS NOT NULL GROUP BY ALL""").fetchall()
    for columns, table_id, paths in shapes:
        for column in _all_columns(file_columns(columns)):
            target = known.get((table_id, -1 if column.field_id is None else column.field_id))
            if target is None or target.type in _STORED_OTHERWISE or holds(target, column):
                continue
            detail = f"{target.name} is {target.type}, the file has {column.type}"
            con.executemany("INSERT INTO narrowed VALUES (?, ?)", [(path, detail) for path in paths])


def _all_columns(columns: Sequence[FileColumn]) -> Iterator[FileColumn]:
    for column in columns:
        yield column
        yield from _all_columns(column.children)
