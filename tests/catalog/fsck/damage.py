"""Damage a lake, and say what fsck found."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import duckdb

from ducklake_orch import DuckLake, SQLiteCatalog, errors
from ducklake_orch.engine.quoting import literal
from ducklake_orch.results import FsckReport


def damage(lake: DuckLake, *statements: str) -> None:
    """Change the metadata behind everybody's back."""
    if isinstance(lake.config.catalog, SQLiteCatalog):  # saves starting a DuckDB
        with closing(sqlite3.connect(lake.config.catalog.path)) as catalog:
            for statement in statements:
                catalog.execute(statement)
            catalog.commit()
        return
    with lake.connect_metadata(read_only=False) as con:
        for statement in statements:
            if lake.config.catalog.type == "mysql":  # DuckDB cannot change its tables well
                statement = f"CALL mysql_execute({literal(lake.config.metadata_alias)}, {literal(statement)})"
            con.execute(statement)


def rows(lake: DuckLake, sql: str) -> list[tuple[Any, ...]]:
    """What the engine answers, in a process that has seen nothing before."""
    with lake.connect() as con:
        return con.execute(sql).fetchall()


def script(lake: DuckLake, *statements: str) -> None:
    """Run statements on one connection of the engine, with what it keeps in memory between them."""
    with lake.connect() as con:
        for statement in statements:
            con.execute(statement)


def value(lake: DuckLake, sql: str) -> Any:
    return rows(lake, sql)[0][0]


def meta(lake: DuckLake, sql: str) -> Any:
    """One value of the metadata of a lake on SQLite."""
    assert isinstance(lake.config.catalog, SQLiteCatalog)
    with closing(sqlite3.connect(lake.config.catalog.path)) as catalog:
        return catalog.execute(sql).fetchall()[0][0]


def path_of(lake: DuckLake, file_id: int, kind: str = "data", table: str = "t") -> str:
    """The path of a file of a table in `main`, as reports have it."""
    stored = meta(lake, f"SELECT path FROM ducklake_{kind}_file WHERE {kind}_file_id = {file_id}")
    return f"{lake.config.data_path}main/{table}/{stored}"


def found(report: FsckReport) -> list[tuple[str, str | None, str | None]]:
    return [(finding.code, finding.table, finding.file) for finding in report.findings]


def refused(lake: DuckLake, sql: str) -> str:
    """The engine's error."""
    try:
        rows(lake, sql)
    except (duckdb.Error, errors.DuckLakeOrchError) as error:
        return str(error)
    raise AssertionError(f"{sql} worked")


def repaired(lake: DuckLake, **modes: Any) -> Sequence[tuple[str, str | None, str | None]]:
    """Repair a lake, which is whole afterwards; return what was found before."""
    report = lake.fsck(repair=True, **modes)
    assert report.findings == [], str(report)
    return [(finding.code, finding.table, finding.file) for finding in report.repaired]
