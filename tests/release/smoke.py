"""Does an installed package work? Run in a fresh environment by `tests.release.check`: extra, version."""

import os
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path


def plain(expected: str) -> None:
    """Version, types, command line, a write and a read: what every installation can do."""
    import pyarrow as pa

    import ducklake_orch
    from ducklake_orch import DuckLake

    place = Path(ducklake_orch.__file__).parent
    assert "site-packages" in place.parts, place
    assert (place / "py.typed").exists()
    assert version("ducklake-orch") == ducklake_orch.__version__ == expected
    program = Path(sys.executable).with_name("ducklake-orch")
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    assert told.strip() == f"ducklake-orch {expected}", told
    lake = DuckLake.local("plain")
    lake.write(pa.table({"id": [1, 2]}), "sales.orders", mode="append")
    assert lake.read("sales.orders").num_rows == 2
    lake.maintain().raise_for_error()
    subprocess.run(
        [program, "fsck", "--deep", "--catalog", "sqlite:///plain.sqlite", "--storage", "plain.files"], check=True
    )


def spark() -> None:
    """Executors write, Spark reads."""
    from ducklake_orch import DuckLake
    from ducklake_orch.spark import local_session

    session, lake = local_session("smoke"), DuckLake.local("spark")
    frame = session.sql("SELECT id, concat('r', id % 3) AS region FROM range(1000)")
    lake.write(frame, "t", mode="append", partition_by=["region"])
    assert lake.read("t", session, where="region = 'r1'").count() == 333
    session.stop()


def dagster() -> None:
    """An asset becomes a table, and maintenance is a set of definitions."""
    import dagster as dg
    import pyarrow as pa

    from ducklake_orch.dagster import DuckLakeIOManager, DuckLakeResource, build_maintenance_definitions

    @dg.asset
    def numbers() -> pa.Table:
        return pa.table({"id": [1, 2, 3]})

    lake = DuckLakeResource(
        name="assets", catalog="sqlite:///assets.sqlite", storage="./assets.files", create_if_missing=True
    )
    resources = {"lake": lake, "io_manager": DuckLakeIOManager(lake=lake)}
    assert dg.materialize([numbers], resources=resources).success
    assert lake.lake().table("numbers").count() == 3
    dg.Definitions.merge(dg.Definitions(assets=[numbers], resources=resources), build_maintenance_definitions("lake"))


def airflow() -> None:
    """The provider is found, and its hook opens the lake of a connection."""
    os.environ["AIRFLOW_HOME"] = str(Path("airflow").resolve())
    extra = f'{{"catalog": "sqlite:///{Path("hook.sqlite").resolve()}", "create_if_missing": true}}'
    os.environ["AIRFLOW_CONN_DUCKLAKE_DEFAULT"] = f'{{"conn_type": "ducklake", "extra": {extra}}}'
    import pyarrow as pa

    from ducklake_orch.airflow import DuckLakeHook, build_maintenance_dag
    from ducklake_orch.airflow.get_provider_info import get_provider_info

    assert get_provider_info()["package-name"] == "ducklake-orch"
    DuckLakeHook().lake().write(pa.table({"id": [1]}), "t", mode="append")
    assert DuckLakeHook().get_first("SELECT count(*) FROM t") == (1,)
    assert build_maintenance_dag(schedule=None).tasks


def main(extra: str, expected: str) -> None:
    """Try what an extra brings, and that no other host came along."""
    plain(expected)
    parts = {"spark": spark, "dagster": dagster, "airflow": airflow}
    for name, try_it in parts.items():
        if extra in (name, "all"):
            try_it()
        elif extra != "all":
            assert find_spec({"spark": "pyspark"}.get(name, name)) is None, f"{name} came along"


if __name__ == "__main__":
    main(*sys.argv[1:])
