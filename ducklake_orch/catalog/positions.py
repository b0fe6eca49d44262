"""Look into files for what the catalog does not tell: which of their rows were there at an earlier snapshot."""

from collections.abc import Sequence

import duckdb

from ducklake_orch.catalog.inlined import SNAPSHOT_ID
from ducklake_orch.catalog.model import DataFile, DeleteFile
from ducklake_orch.engine.quoting import literal
from ducklake_orch.errors import UnsupportedStatementError


def parquet_sql(path: str, encryption_key: str | None = None) -> str:
    """Return the source of a file's own columns, and `file_row_number`."""
    key = (
        f", encryption_config = {{footer_key_value: from_base64({literal(encryption_key)})}}" if encryption_key else ""
    )
    return f"read_parquet({literal(path)}, file_row_number = true, hive_partitioning = false{key})"


def deleted_sql(deletes: DeleteFile, at: int) -> str:
    """Return the query for the positions that a delete file takes away at a snapshot.

    Raises:
        UnsupportedStatementError: When it is a deletion vector.
    """
    if deletes.format != "parquet":
        raise UnsupportedStatementError(
            f"{deletes.path} is a deletion vector ({deletes.format}), which is not supported.",
            remedy="Set the option `write_deletion_vectors` to false, and rewrite the files of the table.",
        )
    source = parquet_sql(deletes.path, deletes.encryption_key)
    if not deletes.later:
        return f"SELECT pos FROM {source}"
    maybe = f"SELECT NULL::BIGINT AS {SNAPSHOT_ID} WHERE false UNION ALL BY NAME FROM {source}"
    return f"SELECT pos FROM ({maybe}) WHERE coalesce({SNAPSHOT_ID}, {deletes.begin_snapshot}) <= {at}"


def count_rows(con: duckdb.DuckDBPyConnection, file: DataFile, at: int, inlined_deletes: Sequence[int]) -> int:
    """Return how many rows of a file are live at a snapshot, by reading when they came and went.

    Args:
        con: A connection that has the storage's secrets.
        file: The file, as it is at the snapshot.
        at: The snapshot.
        inlined_deletes: Its positions that the catalog itself names as deleted.
    """
    gone = [deleted_sql(one, at) for one in file.deletes]
    if inlined_deletes:
        gone.append(f"SELECT unnest([{', '.join(map(str, inlined_deletes))}])")
    later = file.partial_max is not None and file.partial_max > at
    conditions = [f"{SNAPSHOT_ID} <= {at}"] if later else []
    conditions += [f"file_row_number NOT IN ({' UNION '.join(gone)})"] if gone else []
    row = con.execute(
        f"SELECT count(*) FROM {parquet_sql(file.path, file.encryption_key)} WHERE {' AND '.join(conditions) or 'true'}"
    ).fetchone()
    return int(row[0]) if row else 0
