"""Smoke test of an installed package. `tests.release.check` runs it in a fresh environment: extra, version."""

import os
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

EXTENSIONS = {
    "postgres": "postgres_scanner",
    "mysql": "mysql_scanner",
    "s3": "aws",
    "azure": "azure",
    "motherduck": "motherduck",
}


def plain(expected: str) -> None:
    """Check what every installation provides: version, types, command line, a write and a read."""
    import pyarrow as pa

    import ducklake_orch
    from ducklake_orch import DuckLake

    place = Path(ducklake_orch.__file__).parent
    assert "site-packages" in place.parts, place
    assert (place / "py.typed").exists()
    assert version("ducklake-orch") == ducklake_orch.__version__ == expected
    program = Path(sys.executable).with_name("ducklake-orch")
    output = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    assert output.strip() == f"ducklake-orch {expected}", output
    explained = subprocess.run([program, "explain", "lake-locked"], capture_output=True, text=True, check=True).stdout
    assert explained.startswith("LakeLockedError (lake-locked)"), explained
    lake = DuckLake.local("plain")
    lake.write(pa.table({"id": [1, 2]}), "sales.orders", mode="append")
    assert lake.read("sales.orders").num_rows == 2
    lake.maintain().raise_for_error()
    subprocess.run(
        [program, "fsck", "--deep", "--catalog", "sqlite:///plain.sqlite", "--storage", "plain.files"], check=True
    )


def spark() -> None:
    """Check that executors write and Spark reads."""
    from ducklake_orch import DuckLake
    from ducklake_orch.spark import local_session

    session, lake = local_session("smoke"), DuckLake.local("spark")
    frame = session.sql("SELECT id, concat('r', id % 3) AS region FROM range(1000)")
    lake.write(frame, "t", mode="append", partition_by=["region"])
    assert lake.read("t", session, where="region = 'r1'").count() == 333
    session.stop()


def dagster() -> None:
    """Check that an asset is stored as a table, and that maintenance has definitions."""
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
    """Check that Airflow finds the provider, and that its hook opens the lake of a connection."""
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


def polars() -> None:
    """Check that a Polars frame is written, and read again."""
    import polars as pl

    from ducklake_orch import DuckLake

    lake = DuckLake.local("polars")
    lake.write(pl.DataFrame({"id": [1, 2]}), "t", mode="append")
    assert lake.read("t").num_rows == 2


def engine_extension(name: str) -> None:
    """Check that the engine loads an extension from the wheel that was installed with ducklake-orch."""
    import duckdb

    from ducklake_orch.engine.extensions import find_wheel, load_extension

    wheel = find_wheel(name)
    assert wheel is not None, f"{name} is not installed"
    assert wheel.file is not None, f"{name} is for other versions of DuckDB: {wheel.versions}"
    if name == "motherduck":  # it loads only with the token of an account
        return
    with duckdb.connect() as con:
        assert load_extension(con, name) == "wheel", name


def main(extra: str, expected: str) -> None:
    """Check the features of an extra, and that no other host is installed."""
    plain(expected)
    parts = {"spark": spark, "dagster": dagster, "airflow": airflow, "polars": polars}
    for name, try_it in parts.items():
        if extra in (name, "all") or (name, extra) == ("spark", "connect"):
            try_it()
        elif extra != "all" and name != "polars":
            assert find_spec({"spark": "pyspark"}.get(name, name)) is None, f"{name} is installed"
    if extra in ("connect", "all"):
        assert find_spec("grpc") is not None, "Spark Connect cannot be used"
    for name, extension in EXTENSIONS.items():
        if extra == name or (extra == "all" and name != "motherduck"):
            engine_extension(extension)


if __name__ == "__main__":
    main(*sys.argv[1:])
