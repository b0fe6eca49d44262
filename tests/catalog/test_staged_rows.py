"""Staged metadata rows: none is changed, and no module is imported while the lock is held."""

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.catalog.metadata import Relation, staged_rows
from ducklake_orch.errors import ConfigError

COLUMNS = {"number": "BIGINT", 'te"xt': "VARCHAR", "flag": "BOOLEAN"}
TEXTS = [
    "",
    "it's",
    '"quoted"',
    "back\\slash",
    "\\u0000",
    "null",
    "[1]",
    "new\nline",
    "\x01",
    "über",
    "😀",
    " a ",
    None,
]
ROWS = [(2**63 - 1, "most", True), (-(2**63), "least", False), (None, None, None)]
ROWS += [(number, text, number % 2 == 0) for number, text in enumerate(TEXTS)]


@pytest.mark.parametrize("as_text", [5_000, 0])
def test_staged_rows_are_unchanged(as_text: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_rows, "_ROWS_AS_TEXT", as_text)
    with duckdb.connect() as con, Relation.of(COLUMNS, ROWS).source(con) as source:
        read = con.execute(f"SELECT * FROM {source}")
        assert [(name, str(kind)) for name, kind, *_ in read.description or ()] == [
            ("number", "BIGINT"),
            ('te"xt', "VARCHAR"),
            ("flag", "BOOLEAN"),
        ]
        assert read.fetchall() == ROWS


def test_a_column_of_only_nulls_keeps_its_type() -> None:
    with duckdb.connect() as con, Relation.of({"flag": "BOOLEAN"}, [(None,)]).source(con) as source:
        assert con.execute(f"SELECT flag, typeof(flag) FROM {source}").fetchall() == [(None, "BOOLEAN")]


def test_nul_characters_are_refused() -> None:
    with (
        duckdb.connect() as con,
        pytest.raises(ConfigError, match="NUL"),
        Relation.of({"text": "VARCHAR"}, [("a\0b",)]).source(con),
    ):
        pass


MERGES = """
import json, sys
from ducklake_orch import DuckLake, MaintenancePolicy
from ducklake_orch.engine import exactly_once

loaded, attempt = {}, exactly_once._attempt

def watched(transaction, session, write, *others):
    before = set(sys.modules)
    try:
        return attempt(transaction, session, write, *others)
    finally:
        loaded.setdefault(write.purpose, []).extend(set(sys.modules) - before)

exactly_once._attempt = watched
lake = DuckLake.local("lake")
policy = MaintenancePolicy.model_validate({"merge": {"min_files": 2, "engine": "duckdb"}})
merged = lake.maintain(policy, ["merge"])
assert merged.status == "ok", merged
assert lake.read("t").num_rows == 300
print(json.dumps(loaded))
"""


def test_no_module_is_imported_while_the_lock_is_held(tmp_path: Path) -> None:
    for number in range(300):
        duckdb.sql(f"COPY (SELECT {number}::BIGINT AS id) TO '{tmp_path}/{number}.parquet'")
    lake = DuckLake.local(tmp_path / "lake")
    lake.execute("CREATE TABLE t (id BIGINT)").raise_for_error()
    lake.add_files("t", [str(tmp_path / f"{number}.parquet") for number in range(300)])
    run = subprocess.run([sys.executable, "-c", MERGES], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    loaded = json.loads(run.stdout)
    assert any("merging" in purpose for purpose in loaded)
    assert not any(loaded.values()), loaded
