"""Commands that run Spark: `write`, `maintain --spark`, and the module for `spark-submit`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql import SparkSession

import ducklake_orch.spark.submit
from ducklake_orch import DuckLake
from tests.support.command_line import REPOSITORY, run


@pytest.fixture(autouse=True)
def _in_a_temporary_folder(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_write_stores_a_query_or_files_in_a_table(tmp_path: Path) -> None:
    lake = ["--catalog", f"sqlite:///{tmp_path}/w.sqlite", "--storage", f"{tmp_path}/w.files"]
    DuckLake.from_url("lake", catalog=lake[1], storage=lake[3], create_if_missing=True).execute("SELECT 1")
    done = run("write", "s.t", "--mode", "error", "--sql", "SELECT id FROM range(10)", "--json", *lake)
    assert (done.code, done.json["rows_written"], done.json["table"]) == (0, 10, "s.t")
    pq.write_table(pa.table({"id": [77]}), tmp_path / "more.parquet")
    more = ["--parquet", str(tmp_path / "more.parquet"), "--idempotency-key", "k", "--message", "more"]
    answers = [run("write", "s.t", "--mode", "append", *more, *lake).out for _ in range(2)]
    assert "1 rows in" in answers[0]
    assert "already committed" in answers[1]
    kept = ("--mode", "merge", "--key", "id", "--strategy", "scd2", "--no-retire-absent", "--boundary")
    for day, price in (("2026-01-01", 1), ("2026-01-02", 2)):
        query = f"SELECT {price} AS id, {price} AS price UNION ALL SELECT 7, {price}"
        assert run("write", "s.prices", *kept, day, "--sql", query, "--json", *lake).json["mode"] == "merge"
    query = "SELECT id, valid_to::VARCHAR AS until FROM s.prices ORDER BY ALL"
    versions = [tuple(row.values()) for row in run("sql", query, "--json", *lake).json["commands"][0]["rows"]]
    assert versions == [(1, None), (2, None), (7, "2026-01-02"), (7, None)]
    wrong = run("write", "s.t", "--mode", "append", "--sql", "SELECT nothing", *lake)
    assert (wrong.code, "nothing" in wrong.err, "JVM" in wrong.err) == (1, True, False)
    assert run("write", "s.t", "--mode", "append", *lake).code == 2
    assert run("write", "s.t", "--mode", "add", "--sql", "SELECT 1", *lake).code == 2


def test_maintain_runs_the_policys_spark_operations(tmp_path: Path) -> None:
    (tmp_path / "ducklake.toml").write_text(
        "[lakes.w]\ncreate_if_missing = true\n"
        f"catalog = 'sqlite:///{tmp_path}/w.sqlite'\nstorage = '{tmp_path}/w.files'\n"
        "[lakes.w.maintenance.merge]\nengine = 'spark'\nmin_files = 2\n"
    )
    lake = DuckLake.from_toml(tmp_path / "ducklake.toml")
    for number in range(3):
        lake.write(pa.table({"id": [number]}), "t", mode="append")
    without_spark = run("maintain", "--operation", "merge")
    assert (without_spark.code, "spark" in without_spark.err) == (2, True)
    report = run("maintain", "--operation", "merge", "--spark", "--json").json
    assert [(step["status"], step["engine"]) for step in report["operations"]] == [("done", "spark")]
    assert sorted(lake.read("t").column("id").to_pylist()) == [0, 1, 2]


def test_spark_submit_runs_the_write_on_the_given_master(tmp_path: Path) -> None:
    DuckLake.local(tmp_path / "lake").execute("SELECT 1")
    env = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "DUCKLAKE_CATALOG": f"sqlite:///{tmp_path}/lake.sqlite",
        "DUCKLAKE_STORAGE": f"{tmp_path}/lake.files",
    }
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[3]"]
    query = "SELECT id, spark_partition_id() AS task FROM range(7)"
    program = [ducklake_orch.spark.submit.__file__, "t", "--mode", "append", "--sql", query]
    done = subprocess.run([*submit, *program], env=env, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["rows_written"] == 7
    tasks = DuckLake.local(tmp_path / "lake").read("t")["task"].to_pylist()
    assert len(set(tasks)) == 3  # the three tasks of the given master
