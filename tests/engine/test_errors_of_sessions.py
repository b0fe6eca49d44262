"""Errors of the engine leave a session as errors of ducklake-orch, except those of a user's own statements."""

from pathlib import Path

import duckdb
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.session import open_metadata, open_session
from ducklake_orch.engine.temporary_setting import temporary_setting
from ducklake_orch.errors import ObjectNotFoundError, StatementError

UNKNOWN = "SELECT * FROM unknown_table"


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    lake = DuckLake.local(tmp_path / "lake")
    lake.ensure_exists()
    return lake


def test_an_error_in_a_session_names_the_lake(lake: DuckLake) -> None:
    with pytest.raises(ObjectNotFoundError, match=r"^Using lake `lake` failed: .*unknown_table"):
        with open_session(lake.config) as session:
            session.con.execute(UNKNOWN)
    assert lake.snapshots()


def test_an_error_on_the_metadata_names_the_lake(lake: DuckLake) -> None:
    with pytest.raises(ObjectNotFoundError, match=r"^Using the metadata of lake `lake` failed: .*unknown_table"):
        with open_metadata(lake.config, trusted=True) as con:
            con.execute(UNKNOWN)


def test_an_error_on_the_storage_names_what_failed(lake: DuckLake) -> None:
    with pytest.raises(StatementError, match=r"^Counting failed: .*INT32"):
        with working_connection(lake.config, "Counting") as con:
            con.execute("SELECT CAST('x' AS INTEGER)").fetchall()


def test_users_see_the_errors_of_the_engine_on_their_own_connections(lake: DuckLake) -> None:
    with pytest.raises(duckdb.CatalogException), lake.connect() as con:
        con.execute(UNKNOWN)
    with pytest.raises(duckdb.CatalogException), lake.connect_metadata() as con:
        con.execute(UNKNOWN)


def test_a_setting_is_reset_after_the_block() -> None:
    with duckdb.connect() as con:
        with temporary_setting(con, "arrow_lossless_conversion", "true"):
            assert con.execute("SELECT current_setting('arrow_lossless_conversion')").fetchone() == (True,)
        assert con.execute("SELECT current_setting('arrow_lossless_conversion')").fetchone() == (False,)


def test_an_error_of_the_block_is_not_hidden_by_the_aborted_transaction() -> None:
    with duckdb.connect() as con:
        con.execute("BEGIN")
        with pytest.raises(duckdb.ConversionException), temporary_setting(con, "arrow_lossless_conversion", "true"):
            con.execute("SELECT CAST('x' AS INTEGER)").fetchall()
