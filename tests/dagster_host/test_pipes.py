"""Pipes: a job run by `spark-submit` reports the metadata that the IO manager would."""

import os
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pyspark
import pytest
from dagster_pipes import PipesContext
from pyspark.sql import SparkSession

import ducklake_orch.spark.submit
from ducklake_orch import DuckLake
from ducklake_orch.dagster import pipes_extras
from tests.servers.base import LOOPBACK
from tests.servers.spark_cluster import SparkCluster
from tests.support.command_line import run
from tests.support.dagster_runs import metadata_of
from tests.support.lakes import Servers

REPOSITORY = Path(__file__).resolve().parents[2]
SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
# Dagster's own Pipes client raises warnings.
pytestmark = pytest.mark.filterwarnings("default")
DAYS = dg.DailyPartitionsDefinition("2026-01-01")


def test_a_submitted_write_reports_the_io_managers_metadata(tmp_path: Path, servers: Servers) -> None:
    cluster = servers.get(SparkCluster)
    lake = DuckLake.local(tmp_path / "lake")
    lake.execute("SELECT 1").raise_for_error()

    @dg.asset(key=["sales", "orders"], partitions_def=DAYS)
    def orders(context: dg.AssetExecutionContext, pipes: dg.PipesSubprocessClient) -> Any:
        day = context.partition_key
        query = f"SELECT id, DATE '{day}' AS day FROM range(1000)"
        options = ["--mode", "replace_where", "--where", f"day = '{day}'", "--sql", query, "--partition-by", "day"]
        command = [SUBMIT, "--master", cluster.url, ducklake_orch.spark.submit.__file__, "sales.orders", *options]
        env = {
            "PYTHONPATH": str(REPOSITORY),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": LOOPBACK,
            "DUCKLAKE_CATALOG": f"sqlite:///{tmp_path}/lake.sqlite",
            "DUCKLAKE_STORAGE": f"{tmp_path}/lake.files",
        }
        done = pipes.run(context=context, command=command, env={**os.environ, **env}, extras=pipes_extras(context))
        return done.get_materialize_result()

    client = dg.PipesSubprocessClient()
    result = dg.materialize([orders], partition_key="2026-01-02", resources={"pipes": client})
    metadata = metadata_of(result, "sales/orders", "2026-01-02")
    assert metadata["dagster/table_name"] == "lake.sales.orders"
    assert metadata["ducklake/rows_written"] == 1000
    assert metadata["ducklake/snapshot_id"] == lake.snapshots()[0].snapshot_id
    assert [column.name for column in metadata["dagster/column_schema"].columns] == ["id", "day"]
    assert lake.table("sales.orders").count() == 1000
    about = lake.snapshots()[0].extra["dagster"]
    assert (about["run_id"], about["asset"], about["partitions"]) == (result.run_id, "sales/orders", ["2026-01-02"])
    assert about["step"] == "sales__orders"


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DuckLake:
    """A lake that environment variables point to."""
    lake = DuckLake.local(tmp_path / "lake")
    lake.execute("SELECT 1").raise_for_error()
    monkeypatch.setenv("DUCKLAKE_CATALOG", f"sqlite:///{tmp_path}/lake.sqlite")
    monkeypatch.setenv("DUCKLAKE_STORAGE", f"{tmp_path}/lake.files")
    return lake


def append(context: Any, table: str, query: str, *, extras: bool = True) -> None:
    """Append by the command line, in this process, as a process that Pipes started would."""
    session_extras = pipes_extras(context) if extras else None
    pipes = (dg.PipesTempFileContextInjector(), dg.PipesTempFileMessageReader())
    with (
        pytest.MonkeyPatch.context() as patch,
        dg.open_pipes_session(context, *pipes, extras=session_extras) as session,
    ):
        patch.setattr(PipesContext, "_instance", None)
        for name, value in session.get_bootstrap_env_vars().items():
            patch.setenv(name, value)
        answer = run("write", table, "--mode", "append", "--sql", query)
    assert answer.code == 0, answer.err


@dg.op
def add(context: dg.OpExecutionContext) -> None:
    """Append; in the first run, fail after it."""
    append(context, "orders", "SELECT 1 AS id")
    if context.run.parent_run_id is None:
        raise RuntimeError("the answer is lost")


@dg.job
def adding() -> None:
    add()


@pytest.mark.parametrize("extras", [True, False])
def test_distinct_appends_of_a_retried_step_are_each_written_once(
    extras: bool, lake: DuckLake, spark: SparkSession, instance: dg.DagsterInstance
) -> None:
    attempts: list[int] = []

    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=1))
    def orders(context: dg.AssetExecutionContext) -> Any:
        attempts.append(1)
        append(context, "orders", "SELECT 1 AS id", extras=extras)
        append(context, "orders", "SELECT 2 AS id", extras=extras)
        append(context, "others", "SELECT 2 AS id", extras=extras)
        if len(attempts) == 1:
            raise RuntimeError("the answers are lost")
        return dg.MaterializeResult()

    assert dg.materialize([orders], instance=instance).success
    assert len(attempts) == 2
    assert sorted(row["id"] for row in lake.read("orders").to_pylist()) == [1, 2]
    assert lake.table("others").count() == 1


def test_identical_appends_of_two_ops_are_both_written(lake: DuckLake, spark: SparkSession) -> None:
    @dg.op
    def first(context: dg.OpExecutionContext) -> int:
        append(context, "orders", "SELECT 1 AS id")
        return 1

    @dg.op
    def second(context: dg.OpExecutionContext, given: int) -> None:
        append(context, "orders", "SELECT 1 AS id")

    @dg.job
    def both() -> None:
        second(first())

    assert both.execute_in_process().success
    assert lake.table("orders").count() == 2


def test_a_re_execution_replays_an_append_whose_answer_was_lost(
    lake: DuckLake, spark: SparkSession, instance: dg.DagsterInstance
) -> None:
    run_config: dict[str, Any] = {"execution": {"config": {"in_process": {}}}}
    with dg.execute_job(dg.reconstructable(adding), instance=instance, run_config=run_config) as first:
        assert not first.success
    assert lake.table("orders").count() == 1
    again = dg.ReexecutionOptions.from_failure(first.run_id, instance)
    with dg.execute_job(
        dg.reconstructable(adding), instance=instance, run_config=run_config, reexecution_options=again
    ) as second:
        assert second.success
    assert lake.table("orders").count() == 1
    assert lake.snapshots()[0].extra["dagster"]["run_id"] == first.run_id


def test_pipes_extras_are_empty_in_a_built_context() -> None:
    assert pipes_extras(dg.build_asset_context()) == {}
