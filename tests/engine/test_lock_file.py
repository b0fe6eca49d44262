"""The lock file beside a catalog: no link is followed, and only those who may write the catalog can lock it."""

import os
import stat
from pathlib import Path

import pytest

from ducklake_orch import DuckLake, errors
from tests.support.backends import DUCKDB, LOCAL, SQLITE, Backend
from tests.support.lakes import MakeLake

FILES = pytest.mark.parametrize("backend", [Backend(kind, LOCAL) for kind in (SQLITE, DUCKDB)], ids=str, indirect=True)
WRITE = "INSERT INTO t VALUES (1)"


@pytest.fixture
def lake(make_lake: MakeLake) -> DuckLake:
    lake = make_lake()
    lake.create_table("t", {"i": "int"})
    return lake


def catalog_of(lake: DuckLake) -> Path:
    return Path(getattr(lake.config.catalog, "path"))  # noqa: B009 - a file's, as the test chose


def lock_of(lake: DuckLake) -> Path:
    return Path(f"{catalog_of(lake)}.lock")


@FILES
@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["symbolic", "hard"])
def test_a_link_to_another_file_is_refused_and_that_file_stays(lake: DuckLake, link: object, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    lock_of(lake).unlink()
    assert callable(link)
    link(victim, lock_of(lake))
    with pytest.raises(errors.StorageError, match="cannot be used") as refusal:
        lake.execute(WRITE).raise_for_error()
    assert "Remove it" in (refusal.value.remedy or "")
    assert victim.read_text() == "precious"
    lock_of(lake).unlink()
    lake.execute(WRITE).raise_for_error()


@FILES
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_what_is_no_file_is_refused(lake: DuckLake, make: object) -> None:
    lock_of(lake).unlink()
    assert callable(make)
    make(lock_of(lake))
    with pytest.raises(errors.StorageError, match="cannot be used"):
        lake.execute(WRITE).raise_for_error()


@FILES
@pytest.mark.parametrize(
    ("catalog", "lock"), [(0o644, 0o600), (0o600, 0o600), (0o664, 0o660), (0o660, 0o660), (0o666, 0o666)]
)
def test_only_those_who_may_write_the_catalog_can_open_it(lake: DuckLake, catalog: int, lock: int) -> None:
    catalog_of(lake).chmod(catalog)
    lock_of(lake).chmod(0o644)  # as older versions made it
    lake.execute(WRITE).raise_for_error()
    assert stat.S_IMODE(lock_of(lake).stat().st_mode) == lock


@FILES
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_file_that_a_stranger_put_there_is_refused_unless_the_group_shares_the_catalog(lake: DuckLake) -> None:
    os.chown(lock_of(lake), 12345, -1)
    catalog_of(lake).chmod(0o644)
    with pytest.raises(errors.StorageError, match="belongs to user 12345"):
        lake.execute(WRITE).raise_for_error()
    catalog_of(lake).chmod(0o664)
    lake.execute(WRITE).raise_for_error()
