"""The lock file of a catalog: links are refused, and only users with write access to the catalog can lock it."""

import os
import stat
from pathlib import Path

import pytest

from ducklake_orch import DuckLake, errors
from tests.support.backends import DUCKDB, LOCAL, SQLITE, Backend
from tests.support.lakes import MakeLake

on_file_catalogs = pytest.mark.parametrize(
    "backend", [Backend(kind, LOCAL) for kind in (SQLITE, DUCKDB)], ids=str, indirect=True
)
WRITE = "INSERT INTO t VALUES (1)"


@pytest.fixture
def lake(make_lake: MakeLake) -> DuckLake:
    lake = make_lake()
    lake.create_table("t", {"i": "int"})
    return lake


def catalog_of(lake: DuckLake) -> Path:
    return Path(getattr(lake.config.catalog, "path"))  # noqa: B009 - the test uses file catalogs


def lock_of(lake: DuckLake) -> Path:
    return Path(f"{catalog_of(lake)}.lock")


@on_file_catalogs
@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["symbolic", "hard"])
def test_a_link_is_refused_and_its_target_stays_unchanged(lake: DuckLake, link: object, tmp_path: Path) -> None:
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


@on_file_catalogs
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_a_lock_file_that_is_not_a_regular_file_is_refused(lake: DuckLake, make: object) -> None:
    lock_of(lake).unlink()
    assert callable(make)
    make(lock_of(lake))
    with pytest.raises(errors.StorageError, match="cannot be used"):
        lake.execute(WRITE).raise_for_error()


@on_file_catalogs
@pytest.mark.parametrize(
    ("catalog", "lock"), [(0o644, 0o600), (0o600, 0o600), (0o664, 0o660), (0o660, 0o660), (0o666, 0o666)]
)
def test_the_lock_file_gets_the_write_permissions_of_the_catalog(lake: DuckLake, catalog: int, lock: int) -> None:
    catalog_of(lake).chmod(catalog)
    lock_of(lake).chmod(0o644)  # the mode that older versions set
    lake.execute(WRITE).raise_for_error()
    assert stat.S_IMODE(lock_of(lake).stat().st_mode) == lock


@on_file_catalogs
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_lock_file_of_another_user_is_refused_unless_the_group_may_write(lake: DuckLake) -> None:
    os.chown(lock_of(lake), 12345, -1)
    catalog_of(lake).chmod(0o644)
    with pytest.raises(errors.StorageError, match="belongs to user 12345"):
        lake.execute(WRITE).raise_for_error()
    catalog_of(lake).chmod(0o664)
    lake.execute(WRITE).raise_for_error()
