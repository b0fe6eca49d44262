"""`ducklake-orch index` creates the indexes of the catalog, and drops them."""

from ducklake_orch import DuckLake
from ducklake_orch.catalog.metadata import has_indexes, reading
from tests.support.command_line import run


def test_index_creates_the_indexes_and_drops_them(lake: DuckLake) -> None:
    assert run("index").out == "The indexes exist.\n"
    assert indexed(lake)
    assert run("index", "--drop", "--json").json == {"indexes": False}
    assert not indexed(lake)


def indexed(lake: DuckLake) -> bool:
    with lake.reading(entering=False) as session, reading(session, "Looking for indexes") as metadata:
        return has_indexes(metadata)
