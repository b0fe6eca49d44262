"""Read every page of files before adding them: one broken page makes the whole table unreadable."""

from collections.abc import Iterator, Sequence

import duckdb

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.error_classes import classify
from ducklake_orch.engine.quoting import file_literals
from ducklake_orch.errors import AuthenticationError, FileNotUsableError, TransientError

_FILES_AT_ONCE = 100
_FILES_NAMED = 20


def refuse_broken(con: duckdb.DuckDBPyConnection, config: LakeConfig, paths: Sequence[str]) -> None:
    """Read all values of files that have the same columns.

    Args:
        con: A connection outside the lake that has the storage's secrets.
        config: The lake, for messages.
        paths: The files.

    Raises:
        FileNotUsableError: When values of a file cannot be read; names the files.
    """
    batches = (paths[start : start + _FILES_AT_ONCE] for start in range(0, len(paths), _FILES_AT_ONCE))
    lines = []
    for path, reason in (broken for batch in batches for broken in _broken(con, config, batch)):
        lines.append(f"  {path}: {reason}")
        if len(lines) == _FILES_NAMED:
            break
    if lines:
        raise FileNotUsableError(
            "Values of these files cannot be read, though their footers can:\n" + "\n".join(lines),
            remedy="No file was added. Rewrite these files, or leave them out.",
        )


def _broken(con: duckdb.DuckDBPyConnection, config: LakeConfig, paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Find the files that cannot be read, each with the reason."""
    files = file_literals(paths)
    try:
        # Reads every value and keeps none.
        con.execute(f"SELECT bit_xor(hash(f)) FROM read_parquet([{files}], hive_partitioning = false) f").fetchall()
        return
    except duckdb.Error as error:
        failure = classify(error, config, "Reading values failed")
    if isinstance(failure, TransientError | AuthenticationError):
        raise failure
    if len(paths) == 1:
        yield paths[0], failure.message.removeprefix("Reading values failed: ").splitlines()[0]
        return
    middle = len(paths) // 2
    for half in (paths[:middle], paths[middle:]):
        yield from _broken(con, config, half)
