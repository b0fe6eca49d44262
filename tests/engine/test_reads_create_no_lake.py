"""Reads never create a lake, even with `create_if_missing`; the first write creates it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.errors import LakeNotFoundError
from tests.support.backends import Backend, catalogs
from tests.support.command_line import run
from tests.support.lakes import MakeLake

READERS: dict[str, Callable[[DuckLake], Any]] = {
    "report": lambda lake: lake.report(),
    "health": lambda lake: lake.health(),
    "fsck": lambda lake: lake.fsck(),
    "plan_maintenance": lambda lake: lake.plan_maintenance(),
    "maintain": lambda lake: lake.maintain(),
    "options": lambda lake: lake.options(),
    "read": lambda lake: lake.read("orders"),
    "read_batches": lambda lake: lake.read_batches("orders"),
    "changes": lambda lake: lake.changes("orders"),
    "columns": lambda lake: lake.table("orders").schema(),
    "files": lambda lake: lake.table("orders").files(),
    "count": lambda lake: lake.table("orders").count(),
    "execute": lambda lake: lake.execute("FROM orders", read_only=True),
}
COMMANDS = (
    "report --json",
    "health",
    "fsck",
    "options",
    "maintain",
    "files orders",
    "changes orders",
)


def files_under(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@catalogs()
class TestMissingLake:
    @pytest.mark.parametrize("verb", READERS)
    def test_a_reading_verb_refuses_a_missing_lake_and_creates_no_files(
        self, verb: str, make_lake: MakeLake, backend: Backend, tmp_path: Path
    ) -> None:
        lake = make_lake()
        with pytest.raises(LakeNotFoundError) as refusal:
            READERS[verb](lake)
        assert refusal.value.remedy
        assert files_under(tmp_path) == []
        if backend.catalog.server:
            assert metadata_tables(lake) == []

    def test_exists_returns_false_and_the_first_write_creates_the_lake(
        self, make_lake: MakeLake, tmp_path: Path
    ) -> None:
        lake = make_lake()
        assert (lake.exists("orders"), lake.tables(), lake.snapshots()) == (False, [], [])
        assert files_under(tmp_path) == []
        lake.write(pa.table({"id": [1]}), "orders", mode="append")
        assert lake.exists("orders")


def metadata_tables(lake: DuckLake) -> list[str]:
    schemas = ("public", getattr(lake.config.catalog, "database", None))
    with lake.connect_metadata() as con:
        rows = con.execute("SELECT schema_name, table_name FROM duckdb_tables()").fetchall()
    return [name for schema, name in rows if schema in schemas and name.startswith("ducklake")]


@pytest.mark.parametrize("command", ["tables", "snapshots"])
def test_a_missing_lake_lists_no_tables_or_snapshots(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ducklake.toml").write_text("[lakes.shop]\ncreate_if_missing = true\n")
    assert run(command).code == 0
    assert files_under(tmp_path) == ["ducklake.toml"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reading_command_creates_no_lake_despite_create_if_missing(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ducklake.toml").write_text("[lakes.shop]\ncreate_if_missing = true\n")
    answer = run(*command.split())
    assert answer.code != 0
    assert "does not exist" in answer.out + answer.err
    assert files_under(tmp_path) == ["ducklake.toml"]
