"""Persisted options: precedence of levels, comparison on connect, and no writes without a request."""

import warnings
from pathlib import Path
from typing import Any

import pytest

from ducklake_orch import DuckLake, errors
from ducklake_orch.errors import OptionDriftWarning
from tests.support.backends import catalogs
from tests.support.lakes import MakeLake


def files_of(lake: DuckLake, table: str) -> int:
    with lake.connect() as con:
        row = con.execute(f"SELECT count(*) FROM ducklake_list_files('lake', '{table}')").fetchone()
    assert row is not None
    return int(row[0])


def test_a_table_option_overrides_schema_lake_attach_and_setting(tmp_path: Path) -> None:
    """The inlining limit decides whether five rows become a file. Each level overrides the one below."""

    def five_rows_become_a_file(lake: DuckLake) -> bool:
        lake.create_table("t", {"i": "int"}, if_not_exists=True)
        before = files_of(lake, "t")
        lake.execute("INSERT INTO t FROM range(5)").raise_for_error()
        return files_of(lake, "t") > before

    def make(**fields: Any) -> DuckLake:
        return DuckLake.local(tmp_path / "lake", **fields)

    setting = {"ducklake_default_data_inlining_row_limit": 0}
    assert not five_rows_become_a_file(make())  # the engine's default is ten rows
    assert five_rows_become_a_file(make(settings=setting))
    attach = make(settings=setting, data_inlining_row_limit=100)
    assert not five_rows_become_a_file(attach)
    attach.set_option("data_inlining_row_limit", 0)
    assert five_rows_become_a_file(attach)
    attach.set_option("data_inlining_row_limit", 100, schema="main")
    assert not five_rows_become_a_file(attach)
    attach.set_option("data_inlining_row_limit", 0, table="t")
    assert five_rows_become_a_file(attach)
    shown = [str(option) for option in attach.options() if option.name == "data_inlining_row_limit"]
    assert sorted(shown) == [
        "data_inlining_row_limit = 0",
        "data_inlining_row_limit = 0 of table main.t",
        "data_inlining_row_limit = 100 of schema main",
    ]


@catalogs()
def test_configured_options_are_compared_on_connect_and_never_written_by_it(make_lake: MakeLake) -> None:
    make_lake().create_table("t", {"i": "int"})
    lake = make_lake(options={"target_file_size": "10MB", "parquet_compression": "zstd"})
    with pytest.warns(OptionDriftWarning, match="target_file_size is None.*parquet_compression is None"):
        lake.execute("SELECT 1").raise_for_error()
    names = {option.name for option in make_lake().options()}
    assert "target_file_size" not in names
    assert lake.apply_options() == {"target_file_size": (None, "10MB"), "parquet_compression": (None, "zstd")}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lake.execute("SELECT 1").raise_for_error()
    assert lake.apply_options() == {}


def test_the_error_for_an_unknown_option_suggests_the_nearest(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    with pytest.raises(errors.ConfigError, match="Did you mean `target_file_size`"):
        lake.set_option("target_filesize", "1MB")
    with pytest.raises(errors.ConfigError, match="target_file_size"):
        DuckLake.local(tmp_path / "lake", options={"target_filesiz": 1})
    lake.create_table("t", {"i": "int"})
    with pytest.raises(errors.DuckLakeOrchError):
        lake.set_option("auto_compact", False, table="nope")
