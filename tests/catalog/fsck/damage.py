"""Damage the metadata of a lake, and read the findings of fsck."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import duckdb

from ducklake_orch import DuckLake, SQLiteCatalog, errors
from ducklake_orch.engine.quoting import literal
from ducklake_orch.results import FsckReport


def damage(lake: DuckLake, *statements: str) -> None:
    """Change the metadata directly, without a snapshot."""
    if isinstance(lake.config.catalog, SQLiteCatalog):  # faster than DuckDB
        with closing(sqlite3.connect(lake.config.catalog.path)) as catalog:
            for statement in statements:
                catalog.execute(statement)
            catalog.commit()
        return
    with lake.connect_metadata(read_only=False) as con:
        for statement in statements:
            if lake.config.catalog.type == "mysql":  # DuckDB supports few changes of its tables
                statement = f"CALL mysql_execute({literal(lake.config.metadata_alias)}, {literal(statement)})"
            con.execute(statement)


def move_to_end(lake: DuckLake, table: str, where: str) -> None:
    """Store rows of a metadata table again, so that a scan without an order reads them last."""
    damage(
        lake,
        f"CREATE TABLE moved AS SELECT * FROM {table} WHERE {where}",
        f"DELETE FROM {table} WHERE {where}",
        f"INSERT INTO {table} SELECT * FROM moved",
        "DROP TABLE moved",
    )


def rows(lake: DuckLake, sql: str) -> list[tuple[Any, ...]]:
    """Return the engine's rows, read on a connection without cached state."""
    with lake.connect() as con:
        return con.execute(sql).fetchall()


def script(lake: DuckLake, *statements: str) -> None:
    """Run statements on one connection of the engine, which keeps its cached state between them."""
    with lake.connect() as con:
        for statement in statements:
            con.execute(statement)


def value(lake: DuckLake, sql: str) -> Any:
    """Return the single value of a query."""
    return rows(lake, sql)[0][0]


def meta(lake: DuckLake, sql: str) -> Any:
    """Return a single value from the metadata of a SQLite lake."""
    assert isinstance(lake.config.catalog, SQLiteCatalog)
    with closing(sqlite3.connect(lake.config.catalog.path)) as catalog:
        return catalog.execute(sql).fetchall()[0][0]


def path_of(lake: DuckLake, file_id: int, kind: str = "data", table: str = "t") -> str:
    """Return the path of a file of a table in `main`, as reports show it."""
    stored = meta(lake, f"SELECT path FROM ducklake_{kind}_file WHERE {kind}_file_id = {file_id}")
    return f"{lake.config.data_path}main/{table}/{stored}"


def found(report: FsckReport) -> list[tuple[str, str | None, str | None]]:
    """Return code, table and file of each finding."""
    return [(finding.code, finding.table, finding.file) for finding in report.findings]


def refused(lake: DuckLake, sql: str) -> str:
    """Return the message with which the engine refuses a statement."""
    try:
        rows(lake, sql)
    except (duckdb.Error, errors.DuckLakeOrchError) as error:
        return str(error)
    raise AssertionError(f"the engine did not refuse {sql}")


def repaired(lake: DuckLake, **modes: Any) -> Sequence[tuple[str, str | None, str | None]]:
    """Repair a lake, check that no findings remain, and return the repaired ones."""
    report = lake.fsck(repair=True, **modes)
    assert report.findings == [], str(report)
    return [(finding.code, finding.table, finding.file) for finding in report.repaired]
