"""Lakes that ducklakepy makes, an implementation of formats 1.0 and 1.1 in Python."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.config.catalogs import FileCatalog

pytest.importorskip("ducklakepy", reason="installed with the group `interop`")
import ducklakepy
from ducklakepy import partitioning, types
from ducklakepy.expressions import col
from ducklakepy.schema import Column, Schema

__all__ = ["SCHEMA", "Column", "Peer", "Schema", "append", "fill", "peer_of", "plain", "some_rows", "types"]
Change = Callable[[Any], object]
SCHEMA = Schema(
    Column("id", types.Int64Type()),
    Column("day", types.DateType()),
    Column("name", types.VarcharType()),
    Column("list", types.ListType(Column("element", types.Int32Type()))),
)


def some_rows(first: int, end: int, **renamed: str) -> pa.Table:
    ids = range(first, end)
    table = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "day": pa.array([date(2024, 1 + i % 3, 1 + i % 20) for i in ids]),
            "name": [f"it's {i}" if i % 7 else None for i in ids],
            "list": pa.array([[i, None] if i % 5 else None for i in ids], pa.list_(pa.int32())),
        }
    )
    return table.rename_columns([renamed.get(name, name) for name in table.column_names])


def append(rows: pa.Table) -> Change:
    return lambda table: table.append(rows)


def plain(rows: pa.Table) -> list[str]:
    return sorted(repr(list(row.items())) for row in rows.to_pylist())


@dataclass
class Peer:
    """A lake that ducklakepy has made.

    Attributes:
        lake: The lake, as we open it.
        catalog: The lake, as ducklakepy opens it.
        rows: The rows of `main.t` that ducklakepy has read, by snapshot.
    """

    lake: DuckLake
    catalog: Any
    rows: dict[int, pa.Table] = field(default_factory=dict)

    def change(self, change: Change) -> None:
        """Change `main.t`, and note its rows."""
        change(self.catalog.load_table("main.t"))
        self.rows[self.catalog.current_snapshot().snapshot_id] = self.catalog.load_table("main.t").to_arrow()


@contextmanager
def peer_of(lake: DuckLake, version: str, *, encrypted: bool = False) -> Iterator[Peer]:
    catalog = lake.config.catalog
    url = f"sqlite:///{catalog.path}" if isinstance(catalog, FileCatalog) else catalog.to_url(reveal=True)
    url = url.replace("postgresql:", "postgresql+psycopg:", 1)
    Path(str(lake.config.data_path)).mkdir(parents=True, exist_ok=True)
    with ducklakepy.DuckLakeCatalog(
        "lake", url=url, data_path=str(lake.config.data_path), spec_version=version
    ) as opened:
        opened.initialize(encrypted=encrypted)
        yield Peer(lake, opened)


def alter(table: Any) -> None:
    with table.update_schema() as update:
        update.add_column("extra", types.Int32Type())
        update.rename_column("name", "label")


def fill(peer: Peer, version: str) -> None:
    """Fill `main.t` with inlined rows, files, partitions, deletions and changed columns."""
    peer.catalog.create_table("main.t", schema=SCHEMA)
    peer.change(lambda table: table.append(some_rows(0, 5)))
    peer.change(lambda table: table.append(some_rows(10, 300)))
    month = partitioning.epoch_month("day") if version == "1.1" else partitioning.month("day")
    peer.change(lambda table: table.set_partitioning(month))
    peer.change(lambda table: table.append(some_rows(300, 500)))
    peer.change(lambda table: table.delete(col("id") < 50))
    peer.change(lambda table: table.update(col("id") > 490, {"name": "updated"}))
    peer.change(alter)
    more = some_rows(800, 805, name="label").append_column("extra", pa.array([1] * 5, pa.int32()))
    peer.change(lambda table: table.append(more))
    peer.change(lambda table: table.delete(col("id") == 802))
    peer.change(lambda table: table.delete(col("id") == 100))
