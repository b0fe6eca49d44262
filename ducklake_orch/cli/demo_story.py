"""The story of `ducklake-orch demo`: ten operations on a table of orders, with the figures that they return."""

from collections.abc import Iterator
from datetime import date
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

    from ducklake_orch.lake import DuckLake

_TABLE = "shop.orders"
_DAYS = [date(2026, 11, day) for day in (1, 2, 3)]
_PER_DAY = 1000


class Step(NamedTuple):
    """An operation of the story.

    Attributes:
        title: What it shows.
        call: The call of the public API.
        figures: What it returned, by name.
    """

    title: str
    call: str
    figures: dict[str, int]


def tell(lake: "DuckLake") -> Iterator[Step]:
    """Run the story, and yield each step once it is done. A table that an earlier run left is dropped first."""
    if lake.exists(_TABLE):
        lake.drop_table(_TABLE)
    week = _concat([_orders(day, number * 10_000, _PER_DAY) for number, day in enumerate(_DAYS)])
    first = lake.write(week, _TABLE, mode="append", partition_by=["day"])
    yield Step("three days of orders", 'write(mode="append")', _figures(lake, rows_in=first.rows_written))

    replaced = lake.write(_orders(_DAYS[1], 10_000, 1100), _TABLE, mode="overwrite_partitions")
    in_and_out = {"rows_in": replaced.rows_written, "rows_out": replaced.rows_removed}
    yield Step("a day is computed again", 'write(mode="overwrite_partitions")', _figures(lake, **in_and_out))

    late = _orders(_DAYS[0], 5000, 50)
    came = lake.write(late, _TABLE, mode="append", idempotency_key=f"late orders {first.snapshot_id}")
    yield Step("orders arrive late", 'write(mode="append")', _figures(lake, rows_in=came.rows_written))

    again = lake.write(late, _TABLE, mode="append", idempotency_key=f"late orders {first.snapshot_id}")
    replayed = _figures(lake, rows_in=0 if again.replayed else again.rows_written)
    yield Step("a retry does not double them", "the same write, same key", replayed)

    merged = lake.merge(_orders(_DAYS[0], 5040, 20), _TABLE, keys=["id"])
    in_and_out = {"rows_in": merged.rows_written, "rows_out": merged.rows_removed}
    yield Step("corrections: 10 orders change, 10 are new", "merge(keys=['id'])", _figures(lake, **in_and_out))

    for number in range(8):
        lake.write(_orders(_DAYS[2], 30_000 + number * 5, 5), _TABLE, mode="append")
    yield Step("a till writes eight small files", 'write(mode="append")', _figures(lake, rows_in=8 * 5))

    report = lake.maintain({"merge": {"min_files": 2}}, operations=["merge"]).raise_for_error()
    compacted = {"files_in": report.totals["files_in"], "files_out": report.totals["files_out"]}
    yield Step("compaction", 'maintain(operations=["merge"])', _figures(lake, **compacted))

    before = lake.read(_TABLE, snapshot=first.snapshot_id).num_rows
    yield Step("time travel", f"read(snapshot={first.snapshot_id})", {"rows_then": before, **_figures(lake)})

    kept = lake.snapshots(limit=1)[0].snapshot_id
    deleted = lake.delete(_TABLE, "region = 'north'")
    yield Step("a mistake: a region is deleted", "delete()", _figures(lake, rows_out=deleted.rows_removed))

    lake.rollback(_TABLE, kept)
    yield Step("the mistake is undone", f"rollback({kept})", _figures(lake))


def _figures(lake: "DuckLake", **figures: int) -> dict[str, int]:
    """Return figures of an operation with those of the table after it."""
    table = lake.table(_TABLE)
    state = {"rows": table.count(), "files": len(table.files()), "snapshot": lake.snapshots(limit=1)[0].snapshot_id}
    return figures | state


def _orders(day: date, first: int, count: int) -> "pa.Table":
    import pyarrow as pa

    regions = ["north", "east", "south", "west"]
    columns: dict[str, list[Any]] = {
        "id": list(range(first, first + count)),
        "day": [day] * count,
        "region": [regions[number % 4] for number in range(count)],
        "amount": [number * 37 % 500 / 4 for number in range(count)],
    }
    return pa.table(columns)


def _concat(tables: "list[pa.Table]") -> "pa.Table":
    import pyarrow as pa

    return pa.concat_tables(tables)
