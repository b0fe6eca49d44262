"""Airflow and Dagster write to one lake concurrently."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from airflow.sdk import DAG

from ducklake_orch.airflow import DuckLakeHook, DuckLakeWriteOperator
from tests.support.airflow_runs import run, states

pytest.importorskip("dagster")

ROUNDS = 6
DAGSTER = """
import sys
import dagster as dg
import pyarrow as pa
from ducklake_orch.dagster import DuckLakeIOManager, DuckLakeResource

rounds, catalog, storage = int(sys.argv[1]), sys.argv[2], sys.argv[3]
keys = [f"dagster-{n}" for n in range(rounds)] + ["shared"]

@dg.asset(partitions_def=dg.StaticPartitionsDefinition(keys), metadata={"partition_expr": "part"})
def replaced(context) -> pa.Table:
    return pa.table({"part": [context.partition_key] * 100, "by_host": ["dagster"] * 100})

@dg.asset(metadata={"write_mode": "append"})
def appended() -> pa.Table:
    return pa.table({"by_host": ["dagster"] * 10})

lake = DuckLakeResource(name="lake", catalog=catalog, storage=storage)
resources = {"io_manager": DuckLakeIOManager(lake=lake)}
print("ready", flush=True)
sys.stdin.readline()
for number in range(rounds):
    for key in (f"dagster-{number}", "shared"):
        assert dg.materialize([replaced], resources=resources, partition_key=key).success
    assert dg.materialize([appended], resources=resources).success
"""


def test_concurrent_airflow_and_dagster_writes_keep_every_row(conn_id: str, tmp_path: Path) -> None:
    hook = DuckLakeHook()
    hook.run("CREATE TABLE replaced (part TEXT, by_host TEXT); CREATE TABLE appended (by_host TEXT)")

    def rows(partition_keys: list[str]) -> pa.Table:
        return pa.table({"part": partition_keys * 100, "by_host": ["airflow"] * 100})

    with DAG("both_hosts") as dag:
        keys = [key for number in range(ROUNDS) for key in (f"airflow-{number}", "shared")]
        DuckLakeWriteOperator.partial(
            task_id="replace", table="replaced", partition_expr="part", python_callable=rows, outlets=[]
        ).expand(partition_key=keys)
        DuckLakeWriteOperator.partial(
            task_id="append",
            table="appended",
            mode="append",
            python_callable=lambda number: pa.table({"by_host": ["airflow"] * (9 + number // number)}),
            outlets=[],
        ).expand(op_kwargs=[{"number": number + 1} for number in range(ROUNDS)])

    catalog_and_storage = [f"sqlite:///{tmp_path / 'catalog.sqlite'}", str(tmp_path / "files")]
    command = [sys.executable, "-c", DAGSTER, str(ROUNDS), *catalog_and_storage]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as dagster:
        assert dagster.stdin is not None
        assert dagster.stdout is not None
        while "ready" not in (line := dagster.stdout.readline()):
            assert line
        dagster.stdin.write("go\n")
        dagster.stdin.flush()
        done = run(dag)
        assert dagster.wait(120) == 0
    assert set(states(done).values()) == {"success"}
    parts = hook.get_records("SELECT part, count(*), count(DISTINCT by_host) FROM replaced GROUP BY part")
    assert {(count, hosts) for _, count, hosts in parts} == {(100, 1)}
    assert len(parts) == 2 * ROUNDS + 1
    appended = hook.get_records("SELECT by_host, count(*) FROM appended GROUP BY ALL ORDER BY ALL")
    assert appended == [("airflow", 10 * ROUNDS), ("dagster", 10 * ROUNDS)]
    authors = {snapshot.author for snapshot in hook.snapshots()}
    assert authors >= {"airflow", "dagster"}
