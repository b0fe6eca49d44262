"""Mode `merge` with a DataFrame: small sources are collected by the driver, large ones pass through files."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from ducklake_orch import DuckLake, errors
from tests.support.backends import LOCAL, MYSQL, POSTGRES, S3_DISK, SQLITE, Backend
from tests.support.lakes import MakeLake
from tests.support.refusals import refused
from tests.support.twin_lakes import twins

COLUMNS = """
    id, concat('r', id % 3) AS region, CAST(id / 2 AS DECIMAL(9, 2)) AS half, timestamp_seconds(id * 7200) AS at,
    timestamp_ntz'2024-03-10 02:30:00' AS plain, date_add(date'2024-01-01', CAST(id AS INT)) AS day,
    X'00FF' AS bytes, array(named_struct('a', id, 'b', 'it''s')) AS nested, map('k', id) AS m,
    INTERVAL '1 02:03:04.5' DAY TO SECOND AS span, CAST(id AS FLOAT) AS f, void AS nothing"""
SMALL_SOURCE = f"WITH rows AS (SELECT id, NULL AS void FROM range({{}}, {{}}, 1, 3)) SELECT {COLUMNS} FROM rows"
# Spark estimates a cross join as the product of both sides, whatever the filter leaves.
LARGE_SOURCE = f"""
    WITH rows AS (SELECT a.id, NULL AS void FROM range({{}}, {{}}, 1, 3) a CROSS JOIN range(100000000) b WHERE b.id < 1)
    SELECT {COLUMNS} FROM rows"""
TABLE = """
    CREATE TABLE t (id BIGINT, region VARCHAR, half DECIMAL(9, 2), "at" TIMESTAMPTZ, plain TIMESTAMP, day DATE,
    bytes BLOB, nested STRUCT(a BIGINT, b VARCHAR)[], m MAP(VARCHAR, BIGINT), span INTERVAL, f FLOAT, nothing DATE)"""


def merge(lake: DuckLake, frame: DataFrame, **more: Any) -> tuple[int, int]:
    done = lake.write(frame, "t", mode="merge", keys=["id", "bytes"], **more)
    return done.rows_written, done.rows_removed


def rows(lake: DuckLake) -> list[dict[str, Any]]:
    return sorted(lake.read("t").to_pylist(), key=lambda row: int(row["id"]))


@pytest.mark.parametrize(
    ("kind", "engine"),
    [(SMALL_SOURCE, "auto"), (LARGE_SOURCE, "auto"), (LARGE_SOURCE, "spark")],
    ids=["small source", "large source", "large source in tasks"],
)
@pytest.mark.parametrize(
    "backend", [Backend(SQLITE, LOCAL), Backend(POSTGRES, S3_DISK), Backend(MYSQL, LOCAL)], indirect=True, ids=str
)
def test_merge_updates_matched_rows_and_inserts_the_rest(
    make_lake: MakeLake, spark: SparkSession, kind: str, engine: str
) -> None:
    lake, model = make_lake("merged", data_inlining_row_limit=0), make_lake("model", data_inlining_row_limit=0)
    for duck_lake in (lake, model):
        duck_lake.execute(TABLE).raise_for_error()
    assert merge(lake, spark.sql(kind.format(0, 6))) == (6, 0)
    assert merge(lake, spark.sql(kind.format(3, 9)).replace("r1", "other"), engine=engine) == (6, 3)
    model.write(spark.sql(SMALL_SOURCE.format(0, 3)), "t", mode="append")
    model.write(spark.sql(SMALL_SOURCE.format(3, 9)).replace("r1", "other"), "t", mode="append")
    assert rows(lake) == rows(model)
    assert merge(lake, spark.sql(kind.format(0, 0))) == (0, 0)
    arguments: dict[str, Any] = {"when_not_matched_by_source": "delete", "when_matched": "keep", "engine": engine}
    assert merge(lake, spark.sql(kind.format(2, 4)), **arguments) == (0, 7)
    assert lake.fsck(deep=True, storage=True).findings == []


@pytest.mark.parametrize("kind", [SMALL_SOURCE, LARGE_SOURCE], ids=["small source", "large source"])
def test_a_merge_evaluates_its_frame_once(tmp_path: Path, spark: SparkSession, kind: str) -> None:
    lake, seen = DuckLake.local(tmp_path / "lake"), spark.sparkContext.accumulator(0)

    def note(batches: Any) -> Any:
        for batch in batches:
            seen.add(batch.num_rows)
            yield batch

    source = spark.sql(kind.format(0, 5)).select("id")
    for _ in range(2):
        noted = (
            source.mapInArrow(note, "id bigint")
            if kind == SMALL_SOURCE
            else source.join(spark.range(5).mapInArrow(note, "id bigint"), "id")
        )
        lake.write(noted, "t", mode="merge", keys=["id"])
    assert seen.value == 10
    assert lake.table("t").count() == 5


@pytest.mark.parametrize("kind", [SMALL_SOURCE, LARGE_SOURCE], ids=["small source", "large source"])
def test_a_refused_merge_leaves_no_row_or_file(tmp_path: Path, spark: SparkSession, kind: str) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    lake.execute(TABLE).raise_for_error()
    frame = spark.sql(kind.format(0, 4))

    def refuse(error: type[errors.DuckLakeOrchError], what: DataFrame, text: str, **more: Any) -> None:
        refused(error, lambda: lake.write(what, "t", mode="merge", **{"keys": ["id"], **more}), text)

    refuse(errors.DataError, frame.union(frame), "2 rows of the data have the same keys: id = ")
    refuse(errors.DataError, frame.selectExpr("nullif(id, 2) AS id", "region"), "NULL in a key column")
    refuse(errors.DataError, frame, "no column `idd`. Did you mean `id`?", keys=["idd"])
    refuse(errors.ConfigError, frame, "`engine` = 'sparc' is unknown", engine="sparc")
    refuse(errors.StatementError, frame.selectExpr("id", "CAST(raise_error('boo') AS STRING) AS region"), "boo")
    assert lake.table("t").count() == 0
    assert lake.fsck(deep=True, storage=True).findings == []


MERGES: list[tuple[str, dict[str, Any]]] = [
    ("i % 3 = 0", {}),
    ("i % 4 = 1", {"when_matched": {"x": "target.x + source.x", "S": "source.s || coalesce(target.s, 'é')"}}),
    ("i > 700", {"matched_condition": "source.x > target.x OR target.s IS NULL", "when_not_matched": "ignore"}),
    ("i < 1300", {"delete_condition": "source.i % 5 = 0", "when_matched": "keep"}),
    ("i % 11 = 2", {"when_matched": "delete", "when_not_matched": "ignore"}),
    ("i < 400 OR i > 1395", {"when_not_matched_by_source": "delete"}),
    ("false", {}),
]


@pytest.mark.parametrize("backend", [Backend(SQLITE, LOCAL), Backend(POSTGRES, S3_DISK)], indirect=True, ids=str)
def test_both_engines_merge_the_same_rows(make_lake: MakeLake, spark: SparkSession) -> None:
    duckdb_lake, spark_lake = twins(make_lake)
    frame = spark.sql("""
        SELECT id AS i, concat('new ', id % 9) AS s, date_add(DATE '2023-12-30', CAST(id % 50 AS INT)) AS d,
               timestamp_seconds(id) AS ts, CAST(id % 70 / 100 AS DECIMAL(9, 2)) AS x FROM range(0, 1500)""")
    for condition, arguments in MERGES:
        for lake, engine in ((duckdb_lake, "duckdb"), (spark_lake, "spark")):
            done = lake.write(frame.where(condition), "t", mode="merge", keys=["i"], engine=engine, **arguments)
            assert done.engine == (engine if condition != "false" else "duckdb")
        assert known_rows(duckdb_lake) == known_rows(spark_lake)
    assert spark_lake.fsck(deep=True, storage=True).findings == []


def known_rows(lake: DuckLake) -> list[dict[str, Any]]:
    """Return rows with their row ids, except for new rows, whose ids are assigned in any order."""
    found = lake.execute("SELECT rowid, * FROM t ORDER BY i", max_rows=None).rows
    return [row | ({"rowid": None} if row["rowid"] >= 1402 else {}) for row in found]


def test_an_expression_that_fails_in_a_task_aborts_the_merge(tmp_path: Path, spark: SparkSession) -> None:
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)
    lake.execute("CREATE TABLE t AS SELECT range AS id, 1::TINYINT AS small FROM range(100)").raise_for_error()
    frame = spark.range(50, 60).selectExpr("id", "CAST(1 AS BYTE) AS small")

    def write(**arguments: Any) -> None:
        lake.write(frame, "t", mode="merge", keys=["id"], engine="spark", **arguments)

    for arguments in ({"when_matched": {"small": "1000"}}, {"matched_condition": "(source.id || 'x')::INT > 0"}):
        with pytest.raises(errors.DuckLakeOrchError) as refused:
            write(**arguments)
        assert isinstance(refused.value, errors.TerminalError)
        assert "INT" in str(refused.value)
    assert lake.table("t").history(rows=True)[0].snapshot_id == 1
    assert lake.fsck(deep=True, storage=True).findings == []


def test_now_has_one_value_in_all_merged_rows(tmp_path: Path, spark: SparkSession) -> None:
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)
    lake.write(spark.range(0, 1000, 1, 4).selectExpr("id", "timestamp_seconds(0) AS at"), "t", mode="append")
    done = lake.write(spark.range(500), "t", mode="merge", keys=["id"], engine="spark", when_matched={"at": "now()"})
    assert done.engine == "duckdb"  # tasks would evaluate `now()` at different times
    assert lake.execute('SELECT count(DISTINCT "at") AS n FROM t').rows == [{"n": 2}]


@pytest.mark.parametrize("backend", [Backend(SQLITE, LOCAL)], indirect=True, ids=str)
def test_struct_fields_added_by_a_merge_exist_in_every_row(make_lake: MakeLake, spark: SparkSession) -> None:
    lakes = [make_lake("here", data_inlining_row_limit=0), make_lake("there", data_inlining_row_limit=0)]
    frame = spark.sql("SELECT id, named_struct('a', id, 'b', 'new') AS s FROM range(0, 600)")
    for lake, engine in zip(lakes, ("duckdb", "spark"), strict=True):
        for first in (0, 1000):
            rows = spark.range(first, first + 1000, 1, 1).selectExpr("id", "named_struct('a', id) AS s")
            lake.write(rows, "t", mode="append")
        delete: dict[str, Any] = {"when_matched": "delete", "when_not_matched": "ignore", "schema_evolution": "add"}
        lake.write(frame.where("id < 500"), "t", mode="merge", keys=["id"], engine=engine, **delete)
        lake.write(frame, "t", mode="merge", keys=["id"], engine=engine)
    assert rows_of(lakes[0]) == rows_of(lakes[1])
    assert lakes[1].fsck(deep=True, storage=True).findings == []


def rows_of(lake: DuckLake) -> list[dict[str, Any]]:
    return lake.execute("FROM t ORDER BY id", max_rows=None).rows


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_keys_that_a_file_would_round_are_refused(tmp_path: Path, spark: SparkSession, engine: str) -> None:
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)
    create = "CREATE TABLE t AS SELECT * FROM (VALUES (9007199254740992::HUGEINT, 'a'), (1, 'stays')) AS v(k, x)"
    lake.execute(create).raise_for_error()
    frame = spark.sql("SELECT * FROM VALUES (9007199254740992, 'n1'), (9007199254740993, 'n2') AS v(k, x)")

    def merge(data: DataFrame) -> None:
        lake.write(data, "t", mode="merge", keys=["k"], engine=engine)

    refused(errors.DataError, lambda: merge(frame), "rounded DOUBLE", "DECIMAL(38, 0)")
    merge(frame.where("x = 'n1'"))
    assert lake.execute("SELECT k::VARCHAR AS k, x FROM t ORDER BY t.k").rows == [
        {"k": "1", "x": "stays"},
        {"k": "9007199254740992", "x": "n1"},
    ]


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
@pytest.mark.parametrize("backend", [Backend(SQLITE, LOCAL), Backend(POSTGRES, S3_DISK)], indirect=True, ids=str)
def test_every_strategy_has_the_same_result_on_both_engines(
    make_lake: MakeLake, spark: SparkSession, engine: str
) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    old = "SELECT id, concat('v', id % 4) AS v, array(id % 3) AS nested, id % 2 AS half FROM range({}, {})"
    new = f"SELECT id, concat('v', id % 4 + id div 30) AS v, nested, half FROM ({old})"
    known: dict[str, list[tuple[Any, ...]]] = {}
    for strategy in ("upsert", "insert-only", "delete-insert", "scd2"):
        boundaries = [date(2026, 1, 1), date(2026, 1, 2)] if strategy == "scd2" else [None, None]
        for query, boundary in zip((old.format(0, 40), new.format(20, 50)), boundaries, strict=True):
            more: dict[str, Any] = {} if boundary is None else {"boundary": boundary}
            table = strategy.replace("-", "_")
            done = lake.merge(spark.sql(query), table, ["id"], strategy=strategy, engine=engine, **more)
        assert done.engine == engine
        known[strategy] = sorted(
            (tuple(row.values()) for row in lake.read(table).to_pylist()), key=lambda row: (row[0], row[1])
        )
    first = {row["id"]: (row["v"], row["nested"], row["half"]) for row in spark.sql(old.format(0, 40)).collect()}
    second = {row["id"]: (row["v"], row["nested"], row["half"]) for row in spark.sql(new.format(20, 50)).collect()}
    assert known["upsert"] == known["delete-insert"] == [(key, *row) for key, row in sorted((first | second).items())]
    assert known["insert-only"] == [(key, *row) for key, row in sorted((second | first).items())]
    begun, changed = date(2026, 1, 1), date(2026, 1, 2)
    versions = [(key, *row, begun, None if second.get(key) == row else changed) for key, row in first.items()]
    versions += [(key, *row, changed, None) for key, row in second.items() if first.get(key) != row]
    assert known["scd2"] == sorted(versions, key=lambda row: (row[0], row[1]))
    assert lake.fsck(deep=True, storage=True).findings == []
