"""Find signs that another lake uses a data path: its files there, a catalog next to this one, a catalog in the path."""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

import duckdb

from ducklake_orch.catalog.metadata import Metadata, as_listed, canonical, origin, text
from ducklake_orch.catalog.search import planning
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.quoting import identifier, literal
from ducklake_orch.errors import DuckLakeOrchError

_DATABASES = (".sqlite", ".sqlite3", ".db", ".duckdb", ".ducklake")
_OF_SQLITE, _OF_DUCKDB = b"SQLite format 3\0", b"DUCK"


def other_lakes(config: LakeConfig, root: str, listed: Sequence[str], strays: Sequence[str]) -> list[str]:
    """Return why another lake may use a data path; nothing if there is no sign of one.

    Args:
        config: The lake.
        root: Its data path.
        listed: All files there.
        strays: The files that may belong to another lake.
    """
    with planning(config, f"Looking for other lakes in {root}") as metadata:
        own = metadata.lake_mark()
    reasons = [_by_mark(strays, own), *_by_files(config, listed, root), *_by_catalogs(config, root)]
    return [reason for reason in reasons if reason]


def _by_mark(strays: Sequence[str], own: str) -> str:
    for path in strays:
        mark = origin(path)[1]
        if mark is not None and mark != own:
            return f"{path} has the mark of another lake, {mark}"
    return ""


def _by_files(config: LakeConfig, listed: Sequence[str], root: str) -> Iterator[str]:
    """Find catalogs inside the data path: their lakes may keep files there too."""
    for path in listed:
        if _is_own(config, path):
            continue
        if "://" in path:
            if path.lower().endswith(_DATABASES):
                yield f"{path} may be the catalog of another lake"
        elif _kind(path) is not None and _shares(path, root, inside=True):
            yield f"{path} may be the catalog of another lake"


def _by_catalogs(config: LakeConfig, root: str) -> Iterator[str]:
    """Find other lakes whose catalogs are in the same folder, or on the same server, as this lake's catalog."""
    if (catalog := config.catalog_file) is not None:
        for path in sorted(catalog.absolute().parent.iterdir()):
            if path.is_file() and not _is_own(config, str(path)) and _shares(str(path), root):
                yield f"the lake of the catalog {path} may use the same data path"
        return
    if not dialect_of(config).is_server:
        return
    try:
        with planning(config, "Looking for other lakes on the server") as metadata:
            for name, other in _on_server(metadata):
                if _overlap(other, root):
                    yield f"the lake in `{name}` on the same server uses {other}"
    except DuckLakeOrchError as error:
        yield f"the lakes on the same server cannot be read: {error.message}"


def _on_server(metadata: Metadata) -> Iterator[tuple[str, str]]:
    dialect = metadata.dialect
    sql = (
        f"select {dialect.texts(['table_schema'])} from information_schema.tables"
        f" where table_name = 'ducklake_metadata' and table_schema <> {dialect.current_schema()} order by 1"
    )
    for row in metadata.rows(dialect.query(sql)):
        name = text(row[0]) or ""
        table = f"{dialect.quoted(name)}.ducklake_metadata"
        sql = f"select {dialect.texts(['m.value'])} from {table} m where m.key = 'data_path' and m.scope is null"
        for (path,) in metadata.rows(dialect.query(sql)):
            yield name, text(path) or ""


def _is_own(config: LakeConfig, path: str) -> bool:
    catalog = config.catalog_file
    return catalog is not None and "://" not in path and os.path.realpath(path) == os.path.realpath(catalog)


def _kind(path: str) -> str | None:
    """Return the kind of database that a file is, judged by its first bytes."""
    with suppress(OSError), Path(path).open("rb") as file:
        head = file.read(16)
        if head == _OF_SQLITE:
            return "sqlite"
        if head[8:12] == _OF_DUCKDB:
            return "duckdb"
    return None


def _shares(path: str, root: str, *, inside: bool = False) -> bool:
    """Return whether a file is the catalog of a lake that may use a data path; true if the file cannot be read.

    Args:
        path: The file.
        root: The data path.
        inside: Whether the file lies in the data path. If so, any lake in it counts.
    """
    kind = _kind(path)
    if kind is None:
        return False
    try:
        paths = list(_data_paths(path, kind))
    except (duckdb.Error, sqlite3.Error):
        return True
    return any(inside or _overlap(data_path, root) for data_path in paths)


def _data_paths(path: str, kind: str) -> Iterable[str]:
    where = "FROM {} WHERE key = 'data_path' AND scope IS NULL"
    if kind == "sqlite":
        with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)) as file:
            if not file.execute("SELECT 1 FROM sqlite_master WHERE name = 'ducklake_metadata'").fetchall():
                return []
            return [str(row[0]) for row in file.execute(f"SELECT value {where.format('ducklake_metadata')}").fetchall()]
    with duckdb.connect() as con:
        con.execute(f"ATTACH {literal(path)} AS other (TYPE duckdb, READ_ONLY)")
        tables = "SELECT schema_name FROM duckdb_tables() WHERE database_name = 'other'"
        schemas = con.execute(f"{tables} AND table_name = 'ducklake_metadata'").fetchall()
        names = [f"other.{identifier(str(row[0]))}.ducklake_metadata" for row in schemas]
        return [str(row[0]) for name in names for row in con.execute(f"SELECT value {where.format(name)}").fetchall()]


def _overlap(other: str, root: str) -> bool:
    """Return whether one data path contains the other."""
    first, second = (canonical(as_listed(path), root).rstrip("/") + "/" for path in (other, root))
    return first.startswith(second) or second.startswith(first)
