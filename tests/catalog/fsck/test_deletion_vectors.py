"""`fsck(deep=True)` reads deletion vectors, and finds what the catalog says wrongly about them."""

from pathlib import Path

import pytest

from ducklake_orch import DuckLake
from tests.catalog.fsck.damage import damage, found, path_of


def deep(lake: DuckLake) -> list[tuple[str, str | None, str | None]]:
    return found(lake.fsck(deep=True))


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    """Return a lake whose table has 100 rows and a deletion vector for 20 of them."""
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)
    with lake.connect() as con:
        con.execute("CALL ducklake_set_option('lake', 'write_deletion_vectors', true)")
        con.execute("CREATE TABLE t AS SELECT range AS i FROM range(100)")
        con.execute("DELETE FROM t WHERE i < 20")
    assert path_of(lake, 1, "delete").endswith(".puffin")
    assert deep(lake) == []
    return lake


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda content: content[:-1], "unreadable-file"),
        (lambda content: content[:20] + bytes([content[20] ^ 1]) + content[21:], "unreadable-file"),
        (None, "missing-file"),
    ],
)
def test_a_damaged_or_missing_vector_is_found(lake: DuckLake, change: object, code: str) -> None:
    path = Path(path_of(lake, 1, "delete"))
    if callable(change):
        path.write_bytes(change(path.read_bytes()))
    else:
        path.unlink()
    assert deep(lake) == [(code, "main.t", str(path))]


def test_a_vector_with_another_number_of_positions_is_found(lake: DuckLake) -> None:
    damage(lake, "UPDATE ducklake_delete_file SET delete_count = 19")
    assert deep(lake) == [("unreadable-file", "main.t", path_of(lake, 1, "delete"))]


def test_a_vector_with_positions_beyond_the_file_is_found(lake: DuckLake) -> None:
    damage(lake, "UPDATE ducklake_data_file SET record_count = 10")
    assert ("deleted-position-beyond-file", "main.t", path_of(lake, 1, "delete")) in deep(lake)
