"""`lake.add_files` refuses symbolic links, and files with an intact footer and broken pages."""

from pathlib import Path

import pytest

from ducklake_orch import DuckLake
from ducklake_orch.errors import ConfigError, FileNotUsableError
from tests.support.added_files import local_lake, make, rows, write

WIDE = {"a": list(range(5000)), "b": [f"text {n}" for n in range(5000)]}


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    created = local_lake(tmp_path)
    make(created, "a BIGINT, b VARCHAR")
    return created


def broken(path: Path) -> str:
    """Write a file and overwrite its pages, but not its footer."""
    written = Path(write(path, WIDE))
    content = bytearray(written.read_bytes())
    footer = int.from_bytes(content[-8:-4], "little") + 8
    content[4 : len(content) - footer] = b"\xff" * (len(content) - footer - 4)
    written.write_bytes(content)
    return str(written)


@pytest.mark.parametrize("copy", [False, True])
def test_a_file_with_broken_pages_is_refused_by_name(copy: bool, lake: DuckLake, tmp_path: Path) -> None:
    good = [write(tmp_path / f"good{n}.parquet", WIDE) for n in range(3)]
    bad = broken(tmp_path / "bad.parquet")
    for dry_run in (True, False):
        with pytest.raises(FileNotUsableError, match=r"bad\.parquet") as caught:
            lake.add_files("t", [*good, bad], copy=copy, dry_run=dry_run)
        assert "good" not in caught.value.message
    assert rows(lake, "SELECT count(*) FROM t") == [(0,)]
    lake.add_files("t", good, copy=copy)
    assert rows(lake, "SELECT count(*), sum(a) FROM t") == [(15_000, 3 * sum(range(5000)))]


def test_verify_footer_reads_no_pages(lake: DuckLake, tmp_path: Path) -> None:
    assert lake.add_files("t", broken(tmp_path / "bad.parquet"), verify="footer").rows_written == 5000
    with pytest.raises(ConfigError, match="`verify` = 'page' is unknown"):
        lake.add_files("t", "x.parquet", verify="page")  # type: ignore[arg-type]


def test_a_symbolic_link_can_only_be_copied(lake: DuckLake, tmp_path: Path) -> None:
    target = write(tmp_path / "elsewhere" / "f.parquet", WIDE)
    (tmp_path / "in").mkdir()
    link = tmp_path / "in" / "link.parquet"
    link.symlink_to(target)
    for path in (link, f"{tmp_path}/in/*.parquet", f"file://{link}"):
        with pytest.raises(ConfigError, match=r"is a link to .*elsewhere/f\.parquet"):
            lake.add_files("t", path)
    lake.add_files("t", link, copy=True)
    assert rows(lake, "SELECT count(*) FROM t") == [(5000,)]
    with lake.connect_metadata(read_only=True) as con:
        found = con.execute("SELECT path, path_is_relative FROM ducklake_data_file").fetchall()
    assert [relative for _, relative in found] == [True]
    assert Path(target).exists()
