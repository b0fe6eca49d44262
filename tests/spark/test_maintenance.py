"""Maintenance with Spark has the same plan, figures and rows as maintenance with DuckDB."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ducklake_orch import DuckLake
from ducklake_orch.errors import ConfigError
from tests.support.worn_lakes import contents, history, row_ids, whole, worn


def with_engine(engine: str) -> dict[str, Any]:
    return {"merge": {"engine": engine}, "rewrite": {"engine": engine}}


def test_spark_maintenance_matches_duckdb_maintenance(tmp_path: Path, spark: SparkSession) -> None:
    done = {}
    for engine in ("duckdb", "spark"):
        lake = DuckLake.local(tmp_path / engine)
        worn(lake)
        wanted, past, ids = contents(lake, ("t", "d", "i")), history(lake, ("t", "d", "i")), row_ids(lake)
        report = lake.maintain(with_engine(engine), spark=spark).raise_for_error()
        assert {step.engine for step in report.operations if step.operation in ("rewrite", "merge")} >= {engine}
        assert contents(lake, ("t", "d", "i")) == wanted
        assert history(lake, ("t", "d", "i")).items() >= past.items()
        assert row_ids(lake) == ids
        whole(lake)
        done[engine] = [
            (operation.operation, operation.table, operation.files_in, operation.files_out, operation.rows)
            for operation in report.operations
        ]
    assert done["spark"] == done["duckdb"]


def test_spark_maintenance_requires_a_session_before_any_work(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    worn(lake)
    with pytest.raises(ConfigError, match="spark=spark"):
        lake.maintain(with_engine("spark"))
    assert len(lake.table("t").files()) == 5
