"""The tables of an existing lake as external assets: keys, metadata, selection, and the time to read them."""

import time
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.catalog.metadata import Metadata
from ducklake_orch.dagster import DuckLakeFileResource, DuckLakeIOManager, DuckLakeResource, ducklake_asset_specs
from ducklake_orch.errors import LakeNotFoundError, ObjectNotFoundError
from tests.support.dagster_runs import central

COLUMNS = {"id": "BIGINT", "region": "VARCHAR", "at": "TIMESTAMP", "price": "DECIMAL(10,2)", "tags": "VARCHAR[]"}


@pytest.fixture
def lake(resource: DuckLakeResource) -> DuckLake:
    """A lake with a partitioned table that has comments, rows in files, inlined rows and deletions."""
    lake = resource.lake()
    lake.create_table("raw.orders", COLUMNS, partition_by=["region", "year(at)"])
    rows = {"id": [1, 2, 3], "region": ["eu", "us", "eu"], "at": [None] * 3, "price": [None] * 3, "tags": [None] * 3}
    lake.write(pa.table(rows), "raw.orders", mode="append")
    lake.write(pa.table({"id": [1]}), "raw.customers", mode="append")
    lake.write(pa.table({"id": [1]}), "main.plain", mode="append")
    return lake


def spec_of(specs: list[dg.AssetSpec], key: str) -> dg.AssetSpec:
    return next(spec for spec in specs if spec.key.to_user_string() == key)


@central
def test_a_table_is_described_by_its_comment_columns_partitions_and_rows(lake: DuckLake) -> None:
    lake.execute(
        [
            "COMMENT ON TABLE raw.orders IS 'What was ordered'",
            "COMMENT ON COLUMN raw.orders.price IS 'in euros'",
            "ALTER TABLE raw.orders ALTER COLUMN id SET NOT NULL",
            "DELETE FROM raw.orders WHERE id = 2",
            "INSERT INTO raw.orders VALUES (4, 'us', NULL, 1.5, ['a'])",
        ]
    ).raise_for_error()
    spec = spec_of(ducklake_asset_specs(lake), "raw/orders")
    assert spec.description == "What was ordered"
    assert spec.group_name == "raw"
    assert spec.kinds == {"ducklake"}
    assert spec.metadata["dagster/table_name"] == "lake.raw.orders"
    assert spec.metadata["dagster/storage_kind"] == "ducklake"
    assert spec.metadata["dagster/row_count"] == 3
    assert spec.metadata["partition_by"] == ["region", "year(at)"]
    columns = spec.metadata["dagster/column_schema"].columns
    assert {column.name: column.type for column in columns} == COLUMNS
    assert [column.constraints.nullable for column in columns] == [False, True, True, True, True]
    assert [column.description for column in columns] == [None, None, None, "in euros", None]
    assert [dict(column.tags or {}) for column in columns] == [
        {},
        {"partition": "identity"},
        {"partition": "year"},
        {},
        {},
    ]


@central
def test_listed_columns_and_counts_are_those_of_the_tables(lake: DuckLake) -> None:
    lake.execute(
        [
            "INSERT INTO raw.customers SELECT range FROM range(5)",
            "ALTER TABLE raw.customers ADD COLUMN more STRUCT(a INTEGER, b MAP(VARCHAR, DATE)[])",
            "ALTER TABLE raw.customers RENAME COLUMN id TO customer",
            "DELETE FROM raw.customers WHERE customer = 1",
            "CREATE TABLE raw.empty (a JSON, b UUID DEFAULT uuid(), c HUGEINT)",
        ]
    ).raise_for_error()
    specs = ducklake_asset_specs(lake)
    assert [spec.key.to_user_string() for spec in specs] == ["main/plain", "raw/customers", "raw/empty", "raw/orders"]
    for spec in specs:
        table = lake.table(".".join(spec.key.path))
        assert spec.metadata["dagster/row_count"] == table.count()
        columns = [(column.name, column.type) for column in spec.metadata["dagster/column_schema"].columns]
        assert columns == [(column.name, column.type) for column in table.schema()]


@central
def test_an_asset_loads_a_listed_table_by_its_key(lake: DuckLake, resource: DuckLakeResource) -> None:
    @dg.asset(ins={"orders": dg.AssetIn(key=["raw", "orders"]), "plain": dg.AssetIn(key=["main", "plain"])})
    def counted(orders: pa.Table, plain: pa.Table) -> pa.Table:
        return pa.table({"rows": [orders.num_rows, plain.num_rows]})

    @dg.asset(deps=[dg.AssetKey(["raw", "customers"])])
    def after(context: dg.AssetExecutionContext) -> None:
        pass

    definitions = dg.Definitions(
        assets=[*ducklake_asset_specs(resource), counted, after],
        resources={"io_manager": DuckLakeIOManager(lake=resource)},
    )
    graph = definitions.get_repository_def().asset_graph
    assert graph.get(counted.key).parent_keys == {dg.AssetKey(["raw", "orders"]), dg.AssetKey(["main", "plain"])}
    assert graph.external_asset_keys == {spec.key for spec in ducklake_asset_specs(lake)}
    assert definitions.resolve_implicit_global_asset_job_def().execute_in_process().success
    assert lake.read("main.counted").to_pydict() == {"rows": [3, 1]}


def test_schemas_tables_and_exclusions_select_tables(lake: DuckLake) -> None:
    def keys(*args: Any, **options: Any) -> list[str]:
        return [spec.key.to_user_string() for spec in ducklake_asset_specs(lake, *args, **options)]

    @dg.asset(key=["raw", "Customers"])
    def customers() -> None: ...

    assert keys(["raw"]) == ["raw/customers", "raw/orders"]
    assert keys(tables=["raw.o*", "plain"]) == ["main/plain", "raw/orders"]
    assert keys(exclude=["raw.*"]) == keys(exclude="raw.*") == ["main/plain"]
    assert keys("main", key_prefix="shop") == ["shop/main/plain"]
    assert keys(exclude=[customers, dg.AssetSpec("plain")]) == ["raw/orders"]
    assert keys(["raw"], ["raw.orders"], key_prefix=["shop"]) == ["shop/raw/orders"]
    with pytest.raises(ObjectNotFoundError, match="orders"):
        keys(tables=["raw.order"])


def test_names_that_dagster_restricts_are_listed(lake: DuckLake) -> None:
    lake.execute('CREATE SCHEMA "odd schema"; CREATE TABLE "odd schema"."a/b.c" (x INTEGER)').raise_for_error()
    specs = ducklake_asset_specs(lake, ["odd*"])
    assert [(list(spec.key.path), spec.group_name) for spec in specs] == [(["odd schema", "a/b.c"], "odd_schema")]
    assert dg.Definitions(assets=specs).resolve_all_asset_keys()


def test_tables_of_op_outputs_are_not_listed(lake: DuckLake, io_manager: DuckLakeIOManager) -> None:
    @dg.op
    def produce() -> pa.Table:
        return pa.table({"id": [1]})

    @dg.job(resource_defs={"io_manager": io_manager})
    def job() -> None:
        produce()

    assert job.execute_in_process().success
    assert "dagster_outputs" in {table.schema for table in lake.tables()}
    assert {spec.group_name for spec in ducklake_asset_specs(lake)} == {"main", "raw"}


def test_a_lake_at_a_past_snapshot_is_described_as_it_was(lake: DuckLake) -> None:
    before = lake.snapshots(1)[0].snapshot_id
    lake.write(pa.table({"id": [2], "name": ["b"]}), "raw.customers", mode="append", schema_evolution="add")
    lake.execute("CREATE TABLE raw.later (x INTEGER)").raise_for_error()
    past = DuckLake(lake.config.model_copy(update={"snapshot": before}))
    specs = ducklake_asset_specs(past, ["raw"])
    assert [spec.key.path[-1] for spec in specs] == ["customers", "orders"]
    assert spec_of(specs, "raw/customers").metadata["dagster/row_count"] == 1
    assert [column.name for column in specs[0].metadata["dagster/column_schema"].columns] == ["id"]


def test_a_resource_can_take_its_values_from_the_environment(
    lake: DuckLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_CATALOG", str(lake.config.catalog.to_url()))
    given = DuckLakeResource(name="lake", catalog=dg.EnvVar("LAKE_CATALOG"), storage=str(tmp_path / "files"))
    assert len(ducklake_asset_specs(given)) == 3
    file = tmp_path / "ducklake.toml"
    file.write_text('[lakes.lake]\ncatalog = "sqlite:///catalog.sqlite"\nstorage = "./files"\n')
    assert len(ducklake_asset_specs(DuckLakeFileResource(path=str(file)))) == 3


def test_a_lake_that_the_first_write_creates_has_no_assets(tmp_path: Path) -> None:
    assert ducklake_asset_specs(DuckLake.local(tmp_path / "new"), tables=["raw.orders"]) == []
    assert not (tmp_path / "new.sqlite").exists()
    with pytest.raises(LakeNotFoundError):
        ducklake_asset_specs(DuckLake.local(tmp_path / "new", create_if_missing=False))


def test_three_hundred_tables_take_as_many_queries_as_three_and_less_than_two_seconds(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries: list[str] = []
    run = Metadata.rows

    def counting(self: Metadata, sql: str) -> list[tuple[Any, ...]]:
        queries.append(sql)
        return run(self, sql)

    monkeypatch.setattr(Metadata, "rows", counting)
    assert len(ducklake_asset_specs(lake)) == 3
    of_three = len(queries)
    columns = ", ".join(f"c{number} INTEGER" for number in range(20))
    script = [f"CREATE TABLE raw.t{number} ({columns})" for number in range(300)]
    lake.execute(script, atomic=True).raise_for_error()
    queries.clear()
    began = time.monotonic()
    assert len(ducklake_asset_specs(lake)) == 303
    assert time.monotonic() - began < 2
    assert len(queries) == of_three < 15
