"""Buckets of types whose text the engine hashes: every row is in the bucket in which the engine searches for it.

The engine's hash uses the text of another row if rows were filtered before it.
"""

from pathlib import Path

import pytest

from ducklake_orch import DuckLake
from ducklake_orch.engine.quoting import literal

ROWS = 40
VALUES = {
    "UUID": "lpad(hex(n), 32, '0')::UUID",
    "UTINYINT": "n::UTINYINT",
    "UBIGINT": "n::UBIGINT",
    "HUGEINT": "n::HUGEINT",
    "DECIMAL(38,2)": "n::DECIMAL(38, 2)",
    "INTERVAL": "to_days(n::INTEGER)",
    "INTEGER[]": "[n::INTEGER]",
    "STRUCT(a INTEGER)": "{'a': n::INTEGER}",
    # Types that are hashed by value.
    "DECIMAL(18,2)": "n::DECIMAL(18, 2)",
    "DATE": "DATE '2024-01-01' + n::INTEGER",
    "TIME": "TIME '00:00:00' + to_seconds(n)",
    "TIMESTAMP_S": "(TIMESTAMP '2024-01-01' + to_seconds(n))::TIMESTAMP_S",
    "TIMESTAMP_MS": "(TIMESTAMP '2024-01-01' + to_milliseconds(n))::TIMESTAMP_MS",
    "TIMESTAMP_NS": "(TIMESTAMP '2024-01-01' + to_seconds(n))::TIMESTAMP_NS",
    "VARCHAR": "'it''s ' || n",
    "BLOB": "('\\x00' || n)::BLOB",
}


@pytest.mark.parametrize("kind", VALUES)
def test_filtered_rows_are_written_to_their_buckets(tmp_path: Path, kind: str) -> None:
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)
    value = VALUES[kind]
    lake.execute(
        [
            f"CREATE TABLE t (n BIGINT, v {kind}, changed INTEGER, l BIGINT[])",
            "ALTER TABLE t SET PARTITIONED BY (bucket(4, v))",
            f"INSERT INTO t SELECT n, {value}, 0, [n, NULL] FROM range({ROWS}) r(n)",
        ]
    ).raise_for_error()
    lake.update("t", {"changed": "1"}, "n % 3 = 1")
    lake.delete("t", "n % 5 = 2")
    with lake.connect() as con:
        source = con.sql(f"SELECT n, {value} AS v, 2 AS changed, [n] AS l FROM range({ROWS}) r(n) WHERE n % 2 = 0")
        lake.write(source, "t", mode="merge", keys=["n"])
    remaining = [n for n in range(ROWS) if n % 2 == 0 or n % 5 != 2]
    with lake.connect() as con:
        assert con.execute("SELECT list(n ORDER BY n) FROM t").fetchone() == (remaining,)
        for n in remaining:  # the engine's hash of a single constant is correct
            (text,) = con.execute(f"SELECT CAST({value} AS VARCHAR) FROM (SELECT {n} AS n)").fetchall()[0]
            found = con.execute(f"SELECT n FROM t WHERE v = CAST({literal(text)} AS {kind})").fetchall()
            assert found == [(n,)], (n, text)
    assert lake.fsck(deep=True).findings == []


@pytest.mark.parametrize("kind", ["TIMESTAMP_S", "TIMESTAMP_MS"])
def test_a_repair_keeps_a_correct_bucket(tmp_path: Path, kind: str) -> None:
    """A file stores such a timestamp in other units, whose bucket is different."""
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)
    key = "ALTER TABLE t SET PARTITIONED BY (bucket(1000, v))"
    lake.execute([f"CREATE TABLE t (v {kind})", key, "INSERT INTO t VALUES ('2024-01-01')"]).raise_for_error()
    assert lake.fsck(deep=True, repair=True).repair_snapshot is None
    with lake.connect() as con:
        assert con.execute(f"SELECT count(*) FROM t WHERE v = CAST('2024-01-01' AS {kind})").fetchone() == (1,)
