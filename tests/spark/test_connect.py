"""Spark Connect: writes and reads through a client without a JVM, in a separate process."""

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import json, os, sys
from ducklake_orch import DuckLake, errors
from ducklake_orch.spark.column_lineage import column_sources
from ducklake_orch.spark.java_home import find_java

find_java()
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote("local[2]").config("spark.sql.session.timeZone", "Asia/Tokyo").getOrCreate()
lake = DuckLake.local(sys.argv[1], data_inlining_row_limit=0)
frame = spark.sql("SELECT id, concat('r', id % 3) AS region, timestamp_seconds(id) AS ts FROM range(0, 30, 1, 2)")
done = [
    lake.write(frame, "t", mode="append", partition_by=["region", "day(ts)"], distribution="hash"),
    lake.write(frame.where("region = 'r1'"), "t", mode="replace_where", where="region = 'r1'"),
    lake.write(frame.limit(4), "flat", mode="append", idempotency_key="k", engine="native"),
    lake.write(frame.limit(4), "flat", mode="append", idempotency_key="k"),
]
try:
    lake.write(spark.sql("SELECT CAST(raise_error('boo') AS BIGINT) AS id"), "t", mode="append")
    refusal = None
except errors.StatementError as error:
    refusal = str(error)
read = {
    engine: sorted([row.id, row.region, row.ts.isoformat()] for row in lake.read("t", spark, engine=engine).collect())
    for engine in ("auto", "duckdb")
}
lake.register(spark)
frame.limit(5).write.format("ducklake").option("table", "flat").mode("append").save()
stream = lake.stream_writer("flat", query="q")
for batch in (0, 0, 1):
    stream(frame.limit(2), batch)
try:
    lake.stream_writer("flat")(frame, 0)
except errors.ConfigError as error:
    unnamed = str(error)
copied = lake.read_stream(spark, "flat", start="earliest").writeStream.format("ducklake")
copied = copied.options(table="copy", query="copy", checkpointLocation=sys.argv[1] + "-checkpoint")
copied = copied.trigger(availableNow=True)
for _ in range(2):
    query = copied.start()
    assert query.awaitTermination(120), "the query goes on"
few = spark.sql("SELECT 3 AS id UNION ALL SELECT 4")
joined = "SELECT t.id FROM t JOIN few USING (id) JOIN {few} f ON f.id = t.id WHERE t.id > :least"
print(json.dumps({
    "sql": [row.id for row in lake.sql(spark, joined, {"least": 3}, few=few).collect()],
    "source": spark.read.format("ducklake").option("table", "flat").load().count(), "unnamed": unnamed,
    "changes": lake.changes("flat", spark=spark).count(), "lineage": column_sources(lake.read("t", spark)),
    "copy": lake.table("copy").count(),
    "kind": type(frame).__module__,
    "done": [[result.rows_written, result.rows_removed, result.engine, result.replayed] for result in done],
    "read": read, "refusal": refusal, "findings": len(lake.fsck(deep=True, storage=True).findings),
}))
"""


def test_a_connect_session_writes_and_reads(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "lake")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["kind"].startswith("pyspark.sql.connect")
    assert report["sql"] == [4]
    assert report["lineage"] == {}
    written = [[30, 0, "duckdb", False], [10, 10, "duckdb", False], [4, 0, "duckdb", False], [0, 0, "duckdb", True]]
    assert report["done"] == written
    assert [row[:2] for row in report["read"]["auto"]] == [[n, f"r{n % 3}"] for n in range(30)]
    assert report["read"]["duckdb"] == report["read"]["auto"]
    assert "boo" in report["refusal"]
    assert (report["source"], report["changes"], report["copy"]) == (13, 13, 13)
    assert "Give `stream_writer` a `query`" in report["unnamed"]
    assert report["findings"] == 0
