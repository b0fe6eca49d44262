"""Resolve file paths to one canonical spelling.

The engine compares paths as texts, and it deletes files whose paths it does not recognize.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import duckdb

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.urls import scheme_of, shown
from ducklake_orch.engine.error_classes import classify
from ducklake_orch.engine.quoting import exactly, literal
from ducklake_orch.errors import ConfigError, DuplicateFileError, FileNotUsableError

Paths = str | Path | Sequence[str | Path]
# The folder of orphans in quarantine, below the data path.
QUARANTINE_FOLDER = "ducklake_orch_quarantine/"
_FILES_NAMED = 20
# Schemes that mean the same storage.
_FAMILIES = [("s3", "s3a", "s3n"), ("gs", "gcs"), ("r2",), ("az", "azure")]
_READ_ONLY = ("http", "https", "hf")
_GLOB = re.compile(r"[*?\[]")
_FILE_URL = re.compile(r"file:(?://localhost)?/+", re.IGNORECASE)


def as_listed(path: str) -> str:
    """Return a path as DuckDB's listing of the storage spells it, for example `file:///data/…` as `/data/…`."""
    return _FILE_URL.sub("/", path, count=1) if _FILE_URL.match(path) else path


def canonical(path: str, data_path: str) -> str:
    """Return the spelling that the lake uses for a path.

    Args:
        path: The path as given. A local path may be relative to the working directory, and may contain links.
        data_path: The root of the lake's files.
    """
    scheme = scheme_of(path)
    if scheme in (None, "file"):
        return _local(as_listed(path).removeprefix("file://"), as_listed(data_path))
    location = path.partition("://")[2]
    family = next((schemes for schemes in _FAMILIES if scheme in schemes), (scheme,))
    parts = [part for part in location.split("/") if part not in ("", ".")]
    own = scheme_of(data_path)
    if own == "az" and (scheme in ("abfs", "abfss") or "." in parts[0]):
        raise ConfigError(
            f"`{shown(path)}` contains its storage account, so the lake would not recognise the file.",
            remedy="Write `az://container/path`.",
        )
    # Use the scheme of the lake's own data path if it means the same storage.
    return f"{own if own in family else family[0]}://{'/'.join(parts)}"


def _local(path: str, data_path: str) -> str:
    real = os.path.realpath(os.path.expanduser(path))
    if scheme_of(data_path) is not None:
        return real
    # The lake's folder may itself be behind a link; the catalog then stores the path with the link.
    root = os.path.realpath(data_path)
    inside = real.startswith(f"{root.rstrip('/')}/")
    return data_path + os.path.relpath(real, root) if inside else real


def canonical_paths(
    con: duckdb.DuckDBPyConnection, config: LakeConfig, paths: Paths, data_path: str, *, owned: bool
) -> list[str]:
    """Return the canonical paths of the files that paths and patterns match, each once.

    Args:
        con: A connection that has not entered the lake and has the storage's secrets.
        config: The lake.
        paths: The paths and patterns.
        data_path: The root of the lake's files.
        owned: Whether the lake will own the files, and therefore delete them when they are no longer needed.

    Raises:
        ConfigError: When a file that the lake would own is a link.
        FileNotUsableError: When a pattern matches no file.
        DuplicateFileError: When two paths or patterns match the same file.
    """
    if isinstance(paths, str | Path):
        paths = [paths]
    matched: dict[str, list[str]] = {}
    for path in (str(path) for path in paths):
        for file in _files(con, config, path):
            if owned:
                _refuse_link(file)
            matched.setdefault(canonical(file, data_path), []).append(path)
    twice = {path: given for path, given in matched.items() if len(given) > 1}
    if twice:
        lines = [f"  {path}: as {', '.join(map(repr, given))}" for path, given in list(twice.items())[:_FILES_NAMED]]
        raise DuplicateFileError(
            f"{len(twice)} files are given more than once:\n" + "\n".join(lines),
            remedy="Give each file once: otherwise, the lake would contain its rows twice.",
        )
    return list(matched)


def _refuse_link(path: str) -> None:
    """Refuse a link to a file: the lake would own and later delete its target, wherever that is, but not the link."""
    if scheme_of(path) not in (None, "file"):
        return
    local = os.path.expanduser(path.removeprefix("file://"))
    if os.path.islink(local):
        raise ConfigError(
            f"`{path}` is a link to `{os.path.realpath(local)}`, which the lake would own and later delete.",
            remedy="Give the path of the file itself if the lake may delete it, or pass `copy=True` to add a copy.",
        )


def _files(con: duckdb.DuckDBPyConnection, config: LakeConfig, path: str) -> list[str]:
    if path.endswith("/") or (scheme_of(path) is None and os.path.isdir(os.path.expanduser(path))):
        pattern = f"{path.rstrip('/')}/**/*.parquet"
        raise ConfigError(f"`{path}` is a folder.", remedy=f"Write `{pattern}` to select all files in it.")
    if not _GLOB.search(path):
        return [path]
    # A file's name may itself contain glob characters, so an exact match comes first.
    files = _glob(con, config, exactly(path)) or _glob(con, config, path)
    if not files:
        raise FileNotUsableError(f"No file matches `{path}`.", remedy="Check the folder and the pattern.")
    return files


def _glob(con: duckdb.DuckDBPyConnection, config: LakeConfig, pattern: str) -> list[str]:
    pattern = os.path.expanduser(pattern.removeprefix("file://")) if scheme_of(pattern) in (None, "file") else pattern
    try:
        return [str(row[0]) for row in con.execute(f"SELECT file FROM glob({literal(pattern)}) ORDER BY 1").fetchall()]
    except duckdb.Error as error:
        failure = classify(error, config, f"Listing `{pattern}` failed")
    raise failure


def refuse_unowned(paths: Sequence[str]) -> None:
    """Refuse files that a lake cannot own because their storage is read-only, so that they cannot be deleted."""
    web = [path for path in paths if scheme_of(path) in _READ_ONLY]
    if web:
        raise ConfigError(
            f"{web[0]} cannot be a file of a lake, because the lake could not delete it.",
            remedy="Pass `copy=True` to add a copy.",
        )
