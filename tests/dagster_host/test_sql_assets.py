"""SQL files as assets: their keys and dependencies, their writes, and their partitions."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.dagster import (
    DuckLakeIOManager,
    DuckLakeResource,
    ducklake_asset_specs,
    ducklake_sql_assets,
)
from ducklake_orch.errors import ConfigError
from tests.support.backends import catalogs
from tests.support.dagster_runs import central, failure_of, materialize_range, metadata_of

DAYS = dg.DailyPartitionsDefinition("2024-01-01", timezone="America/New_York")


@pytest.fixture
def resource(resource: DuckLakeResource) -> DuckLakeResource:
    """A lake with orders of three days."""
    days = [date(2024, 1, day) for day in (1, 2, 3)]
    orders = {"id": range(6), "day": days * 2, "region": ["eu", "us"] * 3, "price": range(6)}
    resource.lake().write(pa.table(orders), "raw.orders", mode="append")
    return resource


@pytest.fixture
def resources(resource: DuckLakeResource) -> dict[str, Any]:
    return {"lake": resource, "io_manager": DuckLakeIOManager(lake=resource)}


def folder(root: Path, files: Mapping[str, str]) -> Path:
    """Write SQL files, and return their folder."""
    for name, text in files.items():
        file = root / "sql" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root / "sql"


def dependencies(root: Path, query: str, **options: Any) -> set[str]:
    (asset,) = ducklake_sql_assets(folder(root, {"a.sql": query}), **options)
    return {key.to_user_string() for key in asset.dependency_keys}


@central
def test_a_select_becomes_the_table_of_its_file(tmp_path: Path, resource: DuckLakeResource, resources: Any) -> None:
    files = {
        "sales/revenue.sql": "-- Revenue\n-- by region\nSELECT region, sum(price) AS price FROM raw.orders GROUP BY 1",
        "top.sql": "SELECT region FROM sales.revenue ORDER BY price DESC LIMIT 1;\n",
    }
    assets = ducklake_sql_assets(folder(tmp_path, files))
    revenue, top = assets
    assert (revenue.key, top.key) == (dg.AssetKey(["sales", "revenue"]), dg.AssetKey(["top"]))
    assert top.dependency_keys == {revenue.key}
    (spec,) = revenue.specs
    assert (spec.description, spec.kinds) == ("Revenue\nby region", {"ducklake", "sql"})
    assert (spec.group_name, next(iter(top.specs)).group_name) == ("sales", "default")
    for _ in range(2):  # the second run replaces the rows of the first
        result = dg.materialize([dg.AssetSpec(["raw", "orders"]), *assets], resources=resources)
        assert result.success
        rows = resource.lake().read("sales.revenue").to_pylist()
        assert sorted((row["region"], int(row["price"])) for row in rows) == [("eu", 6), ("us", 9)]
        assert resource.lake().read("main.top").to_pylist() == [{"region": "us"}]
    assert metadata_of(result, "sales/revenue")["dagster/row_count"] == 2
    snapshot = resource.lake().snapshots(1)[0]
    assert (snapshot.author, snapshot.extra["dagster"]["asset"]) == ("dagster", "top")


@catalogs()
def test_rows_of_every_type_are_read_and_written_on_every_catalog(lake: DuckLake, tmp_path: Path) -> None:
    config = lake.config
    resource = DuckLakeResource(
        name="lake", catalog=config.catalog, storage=config.storage, create_if_missing=True, alias=config.alias
    )
    lake.write(pa.table({"id": range(1000)}), "t", mode="append")
    wide = "SELECT id::HUGEINT AS wide, uuid() AS u, TIMETZ '12:00:00+00' AS t, {'a': id} AS s FROM t"
    assets = ducklake_sql_assets(folder(tmp_path, {"wide.sql": wide}))
    resources = {"lake": resource, "io_manager": DuckLakeIOManager(lake=resource)}
    assert dg.materialize(assets, resources=resources).success
    kinds = {column.name: column.type for column in lake.table("wide").schema()}
    assert kinds == {"wide": "DECIMAL(38,0)", "u": "UUID", "t": "TIME WITH TIME ZONE", "s": "STRUCT(a BIGINT)"}
    assert lake.table("wide").count() == 1000


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("FROM raw.orders", {"raw/orders"}),
        ("SELECT * FROM lake.raw.orders o JOIN customers USING (id)", {"raw/orders", "customers"}),
        ("WITH b AS (SELECT * FROM raw.b) SELECT * FROM b", {"raw/b"}),
        ("WITH b AS (SELECT * FROM b) SELECT * FROM b, c", {"b", "c"}),
        (
            "WITH b AS (FROM c), d AS (FROM b) SELECT (SELECT 1 FROM (WITH e AS (FROM f) FROM e, d)) FROM e",
            {"c", "e", "f"},
        ),
        ("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) FROM r, x.y", {"x/y"}),
        ("SELECT * FROM b WHERE x IN (SELECT x FROM c) AND EXISTS (FROM d) UNION ALL FROM e", {"b", "c", "d", "e"}),
        ("FROM raw.orders AT (VERSION => 5)", {"raw/orders"}),
        ('FROM "odd schema"."a.b"', {"odd schema/a.b"}),
        ('FROM "odd-schema".b, "odd schema".b', {"odd-schema/b", "odd schema/b"}),
        ("FROM (PIVOT b ON region IN ('eu', 'us') USING sum(price))", {"b"}),
        ("FROM read_parquet('x/*.parquet'), 'y.csv', information_schema.tables, range(3)", set()),
        ("SELECT * FROM A", set()),
        ("SELECT 'FROM b' AS text -- FROM c", set()),
        ("SELECT nosuch(x) FROM b, LATERAL (SELECT * FROM c WHERE c.x = b.x)", {"b", "c"}),
    ],
)
def test_an_asset_depends_on_the_tables_that_its_select_reads(query: str, expected: set[str], tmp_path: Path) -> None:
    assert dependencies(tmp_path, query) == expected


def test_tables_are_matched_to_the_keys_of_other_assets(tmp_path: Path, resource: DuckLakeResource) -> None:
    resource.lake().write(pa.table({"id": [1]}), "main.plain", mode="append")
    others = ducklake_asset_specs(resource, key_prefix=["shop"])
    assert dependencies(tmp_path, "FROM plain, Raw.ORDERS, x", others=others) == {
        "shop/main/plain",
        "shop/raw/orders",
        "x",
    }
    moved = [dg.AssetSpec("stored", metadata={"schema": "raw", "table": "t"})]
    assert dependencies(tmp_path, "FROM raw.t", others=moved) == {"stored"}
    assert dependencies(tmp_path, "FROM raw.t", attributes={"a": {"deps": ["b"]}}) == {"b"}


def test_tables_without_a_schema_are_in_the_schema_of_the_io_manager(
    tmp_path: Path, resource: DuckLakeResource
) -> None:
    manager = DuckLakeIOManager(lake=resource, schema="raw")
    assets = ducklake_sql_assets(folder(tmp_path, {"copy.sql": "FROM orders"}), schema="raw")
    assert dg.materialize(assets, resources={"lake": resource, "io_manager": manager}).success
    assert resource.lake().table("raw.copy").count() == 6
    new = ducklake_sql_assets(folder(tmp_path / "new", {"first.sql": "FROM raw.orders"}), schema="new")
    assert dg.materialize(
        new, resources={"lake": resource, "io_manager": DuckLakeIOManager(lake=resource, schema="new")}
    )
    assert resource.lake().table("new.first").count() == 6


@central
def test_a_partition_is_replaced_by_the_rows_that_its_parameters_select(
    tmp_path: Path, resource: DuckLakeResource, resources: Any
) -> None:
    query = """-- $partition_key in a comment
    SELECT id, day, '$partition_key' AS text, $partition_key AS key, $partition_start AS start,
        $partition_start_utc AS moment
    FROM raw.orders WHERE day >= $Partition_Start AND day < $partition_end"""
    attributes = {"sales/daily": {"partitions_def": DAYS, "metadata": {"partition_expr": "day"}}}
    assets = ducklake_sql_assets(folder(tmp_path, {"sales/daily.sql": query}), attributes=attributes)
    for day in ("2024-01-01", "2024-01-02", "2024-01-01"):
        assert dg.materialize(assets, resources=resources, partition_key=day).success
    rows = resource.lake().read("sales.daily").to_pylist()
    assert sorted((row["id"], row["key"]) for row in rows) == [
        (0, "2024-01-01"),
        (1, "2024-01-02"),
        (3, "2024-01-01"),
        (4, "2024-01-02"),
    ]
    assert {row["text"] for row in rows} == {"$partition_key"}
    assert {row["moment"] for row in rows} == {datetime(2024, 1, 1, 5, tzinfo=UTC), datetime(2024, 1, 2, 5, tzinfo=UTC)}
    assert {row["start"] for row in rows} == {datetime(2024, 1, 1), datetime(2024, 1, 2)}


def test_a_range_of_partitions_has_one_start_and_one_end_but_no_key(
    tmp_path: Path, resource: DuckLakeResource, resources: Any
) -> None:
    files = {
        "window.sql": "SELECT * FROM raw.orders WHERE day >= $partition_start AND day < $partition_end",
        "key.sql": "SELECT * FROM raw.orders WHERE day = $partition_key",
    }
    attributes = {name: {"partitions_def": DAYS, "metadata": {"partition_expr": "day"}} for name in ("window", "key")}
    key, window = ducklake_sql_assets(folder(tmp_path, files), attributes=attributes)
    assert materialize_range([window], "2024-01-01", "2024-01-02", resources=resources).success
    assert resource.lake().table("window").count() == 4
    result = materialize_range([key], "2024-01-01", "2024-01-02", resources=resources, raise_on_error=False)
    assert "$partition_start" in str(failure_of(result).user_failure_data)
    assert not resource.lake().exists("key")


def test_dimensions_of_partitions_are_parameters(tmp_path: Path, resource: DuckLakeResource, resources: Any) -> None:
    both = dg.MultiPartitionsDefinition({"day": DAYS, "region": dg.StaticPartitionsDefinition(["eu", "us"])})
    query = "FROM raw.orders WHERE day >= $partition_start AND day < $partition_end AND region = $partition_key_region"
    attributes = {"a": {"partitions_def": both, "metadata": {"partition_expr": {"day": "day", "region": "region"}}}}
    assets = ducklake_sql_assets(folder(tmp_path, {"a.sql": query}), attributes=attributes)
    key = dg.MultiPartitionKey({"day": "2024-01-02", "region": "us"})
    assert dg.materialize(assets, resources=resources, partition_key=key).success
    assert resource.lake().read("a", columns=["id"]).to_pydict() == {"id": [1]}


def test_a_time_that_a_clock_shows_twice_is_refused_unless_it_is_a_moment(
    tmp_path: Path, resource: DuckLakeResource, resources: Any
) -> None:
    hours = dg.HourlyPartitionsDefinition("2024-11-03-00:00", timezone="America/New_York")
    files = {
        "clock.sql": "SELECT $partition_start AS at",
        "moment.sql": "SELECT $partition_start_utc AS at",
    }
    attributes = {name: {"partitions_def": hours, "metadata": {"partition_expr": "at"}} for name in ("clock", "moment")}
    clock, moment = ducklake_sql_assets(folder(tmp_path, files), attributes=attributes)
    twice = "2024-11-03-01:00-0500"
    failed = dg.materialize([clock], resources=resources, partition_key=twice, raise_on_error=False)
    assert "shows twice" in str(failure_of(failed).user_failure_data)
    assert dg.materialize([moment], resources=resources, partition_key=twice).success
    assert resource.lake().read("moment").to_pydict() == {"at": [datetime(2024, 11, 3, 6, tzinfo=UTC)]}


def test_a_retried_append_never_writes_twice(tmp_path: Path, resource: DuckLakeResource, resources: Any) -> None:
    attributes = {"log": {"metadata": {"write_mode": "append"}}}
    assets = ducklake_sql_assets(folder(tmp_path, {"log.sql": "FROM raw.orders"}), attributes=attributes)

    @dg.asset(deps=["log"])
    def after() -> None:
        raise RuntimeError

    with dg.DagsterInstance.ephemeral() as instance:
        job = dg.Definitions(assets=[*assets, after], resources=resources).resolve_implicit_global_asset_job_def()
        assert not job.execute_in_process(instance=instance, raise_on_error=False).success
        assert resource.lake().table("log").count() == 6
        assert not job.execute_in_process(instance=instance, raise_on_error=False).success
        assert resource.lake().table("log").count() == 12  # a step that succeeded is repeated on purpose


def test_an_error_in_the_select_fails_the_step_without_retries(tmp_path: Path, resources: Any) -> None:
    assets = ducklake_sql_assets(folder(tmp_path, {"a.sql": "SELECT nothing FROM raw.orders"}))
    failure = failure_of(dg.materialize(assets, resources=resources, raise_on_error=False))
    assert "a.sql" in str(failure.user_failure_data)
    assert "nothing" in str(failure.user_failure_data)
    assert failure.user_failure_data.metadata["ducklake/error"].value == "ObjectNotFoundError"


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ({"a.sql": "SELEC 1"}, {}, "not valid SQL"),
        ({"a.sql": "SELECT 1; SELECT 2"}, {}, "not one SELECT"),
        ({"a.sql": "DELETE FROM b"}, {}, "not one SELECT"),
        ({"a.sql": "-- nothing"}, {}, "not one SELECT"),
        ({"a.sql": "PIVOT b ON c"}, {}, "not one SELECT"),
        ({"a.sql": "SELECT $partition_key"}, {}, "unknown parameter"),
        ({"a.sql": "SELECT ?"}, {}, "unknown parameter"),
        ({"a.sql": "SELECT $partition_stat"}, {"attributes": {"a": {"partitions_def": DAYS}}}, "partition_start"),
        ({"a.sql": "SELECT 1"}, {"attributes": {"b": {}}}, "no file `b.sql`"),
        ({"a.sql": "SELECT 1"}, {"attributes": {"a": {"metadata": {"writemode": "append"}}}}, "write_mode"),
        ({"a.sql": "SELECT 1", "main/A.sql": "SELECT 2"}, {}, "same table"),
    ],
)
def test_mistakes_are_refused_when_definitions_load(
    files: dict[str, str], options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        ducklake_sql_assets(folder(tmp_path, files), **options)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        ducklake_sql_assets(tmp_path / "none")


def test_the_code_version_changes_with_the_select(tmp_path: Path) -> None:
    versions = []
    for query in ("SELECT 1 AS a", "SELECT 2 AS a", "SELECT 1 AS a"):
        (asset,) = ducklake_sql_assets(folder(tmp_path, {"a.sql": query}))
        versions.append(next(iter(asset.specs)).code_version)
    assert versions[0] == versions[2] != versions[1]


ORDERS = {name: f"raw/orders.{name}" for name in ("id", "day", "region", "price")}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "SELECT id, o.REGION AS r, price + 1 AS more FROM raw.orders o",
            {"id": "raw/orders.id", "r": "raw/orders.region"},
        ),
        ("FROM raw.orders", ORDERS),
        ("SELECT * EXCLUDE (id, Day) REPLACE (1 AS price) FROM raw.orders", {"region": "raw/orders.region"}),
        ("SELECT region, max(id) AS id FROM raw.orders GROUP BY ALL", {"region": "raw/orders.region"}),
        (
            "SELECT o.id, c.name, name AS n FROM raw.orders o JOIN customers c ON o.id = c.id",
            {"id": "raw/orders.id", "name": "customers.name", "n": "customers.name"},
        ),
        ("SELECT o.*, name FROM raw.orders o JOIN customers c USING (id)", {**ORDERS, "name": "customers.name"}),
        ("SELECT raw.orders.id, orders.day FROM raw.orders", {"id": "raw/orders.id", "day": "raw/orders.day"}),
        ("SELECT id + 1 AS region, region AS r FROM raw.orders", {"r": "raw/orders.region"}),
        ("SELECT orders, current_date, rowid FROM raw.orders", {}),
        ("SELECT * FROM raw.orders JOIN customers USING (id)", {}),
        ("SELECT id FROM raw.orders UNION ALL SELECT id FROM customers", {}),
        ("WITH o AS (FROM raw.orders) SELECT id FROM o", {}),
        ("SELECT id FROM (FROM raw.orders)", {}),
        ("SELECT a AS id FROM raw.orders o(a, b)", {}),
        ("SELECT id, COLUMNS('pri.*') FROM raw.orders", {}),
        ("SELECT id, COLUMNS('.*i.*') AS 'x_\\0' FROM raw.orders", {}),
        ("SELECT id, unnest({'a': 1, 'b': 2}) FROM raw.orders", {}),
    ],
)
def test_columns_that_are_copied_have_a_lineage(
    query: str, expected: dict[str, str], tmp_path: Path, resource: DuckLakeResource, resources: Any
) -> None:
    resource.lake().write(pa.table({"id": [1], "name": ["a"]}), "customers", mode="append")
    (asset,) = ducklake_sql_assets(folder(tmp_path, {"copy.sql": query}))
    with resource.connect() as con:
        con.execute(query)  # the query is valid
    metadata = metadata_of(dg.materialize([asset], resources=resources), "copy")
    lineage = metadata.get("dagster/column_lineage")
    found = {} if lineage is None else lineage.deps_by_column
    shown = {
        name: ", ".join(f"{dep.asset_key.to_user_string()}.{dep.column_name}" for dep in deps)
        for name, deps in found.items()
    }
    assert shown == expected
