"""Spark reads tables of a lake of format 1.1, which the extension does not read."""

from pathlib import Path

from pyspark.sql import SparkSession

from ducklake_orch import DuckLake
from tests.support.ducklakepy_lakes import fill, peer_of, plain


def test_each_snapshot_is_read_by_both_engines(tmp_path: Path, spark: SparkSession) -> None:
    lake = DuckLake.local(tmp_path / "lake", create_if_missing=False)
    with peer_of(lake, "1.1") as peer:
        fill(peer, "1.1")
        for at, rows in peer.rows.items():
            for engine in ("native", "duckdb"):
                assert plain(lake.read("t", spark, snapshot=at, engine=engine).toArrow()) == plain(rows)
        view = lake.sql(spark, "SELECT count(*) AS n FROM t WHERE id > 100").toArrow().to_pylist()
        assert view == [{"n": sum(row["id"] > 100 for row in rows.to_pylist())}]
