"""What a lake stores: the rows of a query, its data files in the storage and in the catalog."""

from pathlib import Path
from typing import Any

from ducklake_orch import DuckLake


def rows(lake: DuckLake, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in lake.execute(sql, max_rows=None).raise_for_error().rows]


def files_of(lake: DuckLake) -> list[str]:
    """Return all data files in the storage."""
    assert lake.config.data_path is not None
    return sorted(
        str(path.relative_to(lake.config.data_path)) for path in Path(lake.config.data_path).rglob("*.parquet")
    )


def lake_file_names(lake: DuckLake) -> list[str]:
    with lake.connect_metadata() as con:
        return [
            str(row[0]) for row in con.execute("SELECT path FROM ducklake_data_file ORDER BY data_file_id").fetchall()
        ]


def nothing_left_over(lake: DuckLake) -> None:
    """Check that every file in the storage belongs to the lake, and that fsck finds nothing."""
    assert [name.removeprefix("main/t/") for name in files_of(lake)] == sorted(lake_file_names(lake))
    assert lake.fsck(storage=True).findings == []
