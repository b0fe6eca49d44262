"""Dumps the metadata tables of a lake, to compare and to restore them."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ducklake_orch import DuckLake
from ducklake_orch.engine.quoting import identifier

Dump = Mapping[str, pa.Table]


def dump(lake: DuckLake) -> Dump:
    """Return the rows of all metadata tables."""
    with lake.connect_metadata() as con:
        names = [row[0] for row in con.execute("SHOW TABLES").fetchall() if row[0].startswith("ducklake_")]
        return {name: con.execute(f"SELECT * FROM {identifier(name)}").to_arrow_table() for name in sorted(names)}


def restore(lake: DuckLake, state: Dump) -> None:
    """Restore the metadata tables from a dump."""
    with lake.connect_metadata(read_only=False) as con:
        there = {row[0] for row in con.execute("SHOW TABLES").fetchall()}
        for name, rows in state.items():
            con.register("__saved", rows)
            if name in there:
                con.execute(f"DELETE FROM {identifier(name)}")
                con.execute(f"INSERT INTO {identifier(name)} SELECT * FROM __saved")
            else:
                con.execute(f"CREATE TABLE {identifier(name)} AS SELECT * FROM __saved")
            con.unregister("__saved")


def readable(state: Dump) -> dict[str, list[dict[str, Any]]]:
    """Return the rows, sorted, without the times at which files were scheduled for deletion."""
    tables = {}
    for name, table in state.items():
        rows = [{key: value for key, value in row.items() if key != "schedule_start"} for row in table.to_pylist()]
        tables[name] = sorted(rows, key=repr)
    return tables
