"""Lists and generators of dicts are written like frames, in bounded memory."""

import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from ducklake_orch import DuckLake
from ducklake_orch.catalog.writing import python_rows
from ducklake_orch.errors import ConfigError, DataError
from tests.support.backends import on_sqlite

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
ROWS: list[dict[str, Any]] = [
    {"id": 1, "name": "it's", "tags": ["a", None], "at": NOON, "price": Decimal("1.5")},
    {"id": 2, "nested": {"x": 1, "list": [{"y": True}]}, "name": None},
    {"id": 3, "nested": {"z": "only here"}, "price": Decimal("100.25"), "raw": b"\x00"},
]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of temporary files; every row is converted alone."""
    monkeypatch.setattr(python_rows, "_ROWS", 1)
    (folder := tmp_path / "temporary").mkdir()
    monkeypatch.setattr(python_rows.tempfile, "tempdir", str(folder))
    return folder


def _by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows in the order of their ids; a table has no order."""
    return sorted(rows, key=lambda row: int(row["id"]))


@on_sqlite
def test_all_keys_of_all_rows_are_columns(lake: DuckLake) -> None:
    assert lake.write(ROWS, "t", mode="append").rows_written == 3
    first, second, third = _by_id(lake.read("t").to_pylist())
    assert first == ROWS[0] | {"nested": None, "raw": None, "price": Decimal("1.50")}
    assert second["nested"] == {"x": 1, "list": [{"y": True}], "z": None}
    assert third["nested"] == {"x": None, "list": None, "z": "only here"}
    types = {column.name: column.type for column in lake.table("t").schema()}
    assert types["nested"] == "STRUCT(x BIGINT, list STRUCT(y BOOLEAN)[], z VARCHAR)"
    assert (types["at"], types["price"]) == ("TIMESTAMP WITH TIME ZONE", "DECIMAL(5,2)")


@on_sqlite
def test_rows_in_several_parts_are_the_same_as_in_one(lake: DuckLake, few: Path) -> None:
    lake.write((row for row in ROWS), "parts", mode="append")
    assert list(few.iterdir()) == []
    python_rows._ROWS = 10
    lake.write(tuple(ROWS), "whole", mode="append")
    assert _by_id(lake.read("parts").to_pylist()) == _by_id(lake.read("whole").to_pylist())
    lake.write([{"i": 1}, {"i": 2.5}], "numbers", mode="append")
    assert lake.read("numbers")["i"].to_pylist() == [1.0, 2.5]


@on_sqlite
def test_a_generator_is_merged(lake: DuckLake) -> None:
    lake.write([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}], "t", mode="append")
    lake.merge(({"id": n, "v": "c"} for n in (2, 3)), "t", ["id"])
    assert sorted(map(tuple, (row.values() for row in lake.read("t").to_pylist()))) == [(1, "a"), (2, "c"), (3, "c")]


@on_sqlite
def test_a_generator_is_never_in_memory_as_a_whole(lake: DuckLake) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        for number in range(300_000):
            yield {"id": number, "text": f"row {number} {'x' * 50}"}

    tracemalloc.start()
    try:
        lake.write(rows(), "t", mode="append")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert lake.table("t").count() == 300_000
    assert peak < 40 * 2**20  # 300,000 such dicts take 100 MiB


@on_sqlite
@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        ([1, 2], ConfigError, "Data of type list cannot be written: a row is of type int"),
        ([{"a": 1}, {"a": "x"}], DataError, "Column `a` of rows 1 to 2 has values"),
        ([{"a": 2**70}], DataError, "Column `a` of rows 1 to 1"),
        ([{1: 2}], DataError, "The name 1 of a column is not a Unicode text"),
        ([], DataError, "The data have no columns"),
        ({"a": [1]}, ConfigError, "Data of type dict cannot be written.*list or generator of dicts"),
    ],
)
def test_what_is_no_table_is_refused(lake: DuckLake, data: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        lake.write(data, "t", mode="append")
    assert not lake.exists("t")


@on_sqlite
def test_later_rows_of_other_types_are_refused(lake: DuckLake, few: Path) -> None:
    with pytest.raises(DataError, match=r"Later rows have other types than earlier ones.*Field a"):
        lake.write([{"a": 1}, {"a": "x"}], "t", mode="append")
    assert list(few.iterdir()) == []
