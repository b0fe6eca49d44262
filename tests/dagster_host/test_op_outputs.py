"""Op outputs: one table per output and run, read by re-executions, and dropped by maintenance when old."""

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_orch.dagster import (
    DuckLakeIOManager,
    DuckLakeResource,
    build_maintenance_definitions,
    drop_op_outputs,
)
from ducklake_orch.errors import MaintenanceFloorError
from tests.dagster_host.jobs import LAKE
from tests.support.dagster_runs import central, metadata_of


def number(value: int) -> pa.Table:
    return pa.table({"n": [value]})


def numbers(table: pa.Table) -> list[int]:
    found: list[int] = table["n"].to_pylist()
    return found


@central
def test_unnamed_op_outputs_get_separate_tables(io_manager: DuckLakeIOManager, resource: DuckLakeResource) -> None:
    seen: list[Any] = []

    @dg.op
    def first() -> pa.Table:
        return number(1)

    @dg.op
    def second() -> pa.Table:
        return number(2)

    @dg.op
    def both(a: pa.Table, b: pa.Table) -> None:
        seen.append((numbers(a), numbers(b)))

    @dg.job(resource_defs={"io_manager": io_manager})
    def reading() -> None:
        both(first(), second())

    @dg.graph_asset
    def sums() -> Any:
        @dg.op
        def add(a: pa.Table, b: pa.Table) -> pa.Table:
            return number(numbers(a)[0] + numbers(b)[0])

        return add(first(), first.alias("again")())

    assert reading.execute_in_process().success
    assert seen == [([1], [2])]
    assert dg.materialize([sums], resources={"io_manager": io_manager}).success
    tables = {(table.schema, table.table) for table in resource.lake().tables()}
    assert [name for schema, name in tables if schema != "dagster_outputs"] == ["sums"]
    assert len(tables) == 5
    with resource.lake().connect(read_only=True) as con:
        assert con.execute("SELECT n FROM main.sums").fetchall() == [(2,)]


def test_runs_of_two_partitions_read_their_own_rows(io_manager: DuckLakeIOManager) -> None:
    seen: dict[str, list[int]] = {}
    partitions = dg.StaticPartitionsDefinition(["1", "2"])

    @dg.op
    def make(context: dg.OpExecutionContext) -> pa.Table:
        return number(int(context.partition_key))

    @dg.op(out=dg.Out(dg.Nothing), ins={"after": dg.In(dg.Nothing)})
    def overtake(context: dg.OpExecutionContext) -> None:
        if context.partition_key == "1":  # the other run writes between this run's output and the op that reads it
            assert job.execute_in_process(partition_key="2").success

    @dg.op(ins={"after": dg.In(dg.Nothing)})
    def take(context: dg.OpExecutionContext, given: pa.Table) -> None:
        seen[context.partition_key] = numbers(given)

    @dg.job(resource_defs={"io_manager": io_manager}, partitions_def=partitions)
    def job() -> None:
        made = make()
        take(made, after=overtake(made))

    assert job.execute_in_process(partition_key="1").success
    assert seen == {"1": [1], "2": [2]}


def test_mapped_step_outputs_get_separate_tables(io_manager: DuckLakeIOManager) -> None:
    @dg.op(out=dg.DynamicOut(pa.Table))
    def fan() -> Any:
        for value in (1, 2):
            yield dg.DynamicOutput(number(value), mapping_key=f"k{value}")

    @dg.op
    def ten(given: pa.Table) -> pa.Table:
        return number(numbers(given)[0] * 10)

    @dg.op(out=dg.Out(dg.Nothing))
    def collect(found):  # type: ignore[no-untyped-def]  # an annotation would describe the list
        assert sorted(numbers(table)[0] for table in found) == [10, 20]

    @dg.job(resource_defs={"io_manager": io_manager})
    def mapped() -> None:
        collect(fan().map(ten).collect())

    assert mapped.execute_in_process().success


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_named_table_that_several_steps_replace_is_refused(dynamic: bool, io_manager: DuckLakeIOManager) -> None:
    out: Any = dg.DynamicOut if dynamic else dg.Out

    @dg.op(out=out(pa.Table, metadata={"table": "t"}))
    def make() -> Any:
        yield dg.DynamicOutput(number(1), mapping_key="a") if dynamic else dg.Output(number(1))

    @dg.op
    def skip(given: pa.Table) -> None:
        return None

    @dg.job(resource_defs={"io_manager": io_manager})
    def job() -> None:
        if dynamic:
            make().map(skip)
        else:
            skip(make())
            skip.alias("other")(make.alias("again")())

    result = job.execute_in_process(raise_on_error=False)
    failures = [event for event in result.all_events if event.is_step_failure]
    assert failures
    for event in failures:
        assert "gets its own table" in str(event.step_failure_data.user_failure_data)


@dg.op
def make() -> pa.Table:
    return number(7)


@dg.op
def take(context: dg.OpExecutionContext, given: pa.Table) -> None:
    """Read the rows; fail in the first run."""
    assert numbers(given) == [7]
    if context.run.parent_run_id is None:
        raise RuntimeError("not yet")


def handing_on() -> dg.JobDefinition:
    @dg.job(resource_defs={"io_manager": DuckLakeIOManager(lake=LAKE)})
    def handing() -> None:
        take(make())

    return handing


def test_a_re_execution_reads_what_its_parent_run_stored(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_CATALOG", f"sqlite:///{tmp_path}/c.sqlite")
    monkeypatch.setenv("LAKE_FILES", str(tmp_path / "files"))
    config: dict[str, Any] = {"execution": {"config": {"in_process": {}}}}
    job = dg.reconstructable(handing_on)
    with dg.execute_job(job, instance=instance, run_config=config) as first:
        assert not first.success
    again = dg.ReexecutionOptions.from_failure(first.run_id, instance)
    with dg.execute_job(job, instance=instance, run_config=config, reexecution_options=again) as second:
        assert second.success
        assert "make" not in {event.step_key for event in second.all_events if event.is_step_start}
    lake = DuckLakeResource(name="lake", catalog=f"sqlite:///{tmp_path}/c.sqlite", storage=str(tmp_path / "files"))
    assert len(lake.lake().tables()) == 1


def move_clock(monkeypatch: pytest.MonkeyPatch, age: timedelta) -> None:
    """Move the clock of this process forward."""
    now = time.time() + age.total_seconds()
    monkeypatch.setattr("ducklake_orch.dagster.op_outputs.time.time", lambda: now)


@central
def test_maintenance_drops_only_old_op_outputs(
    io_manager: DuckLakeIOManager, resource: DuckLakeResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dg.op
    def keep(given: pa.Table) -> None:
        return None

    @dg.job(resource_defs={"io_manager": io_manager})
    def job() -> None:
        keep(make())

    @dg.asset
    def orders() -> pa.Table:
        return number(1)

    assert job.execute_in_process().success
    assert dg.materialize([orders], resources={"io_manager": io_manager}).success
    lake = resource.lake()
    made = next(table.table for table in lake.tables() if table.schema == "dagster_outputs")
    # Tables with similar names, and a table of the same name in another schema.
    kept = [made[:-1] + ("0" if made[-1] != "0" else "1"), "mine", f"copies.{made}"]
    for name in kept:
        lake.write(number(2), name if "." in name else f"dagster_outputs.{name}", mode="error")
    remaining = {"orders", *(name.removeprefix("copies.") for name in kept)}

    definitions = build_maintenance_definitions(operations=["expire"])
    both = dg.Definitions.merge(definitions, dg.Definitions(resources={"lake": resource}))

    def maintained(**config: Any) -> dict[str, Any]:
        given = {"ops": {"lake__maintenance__expire": {"config": config}}}
        result = both.resolve_job_def("lake_maintenance").execute_in_process(run_config=given)
        return metadata_of(result, "lake/maintenance/expire")

    move_clock(monkeypatch, timedelta(days=29))
    assert maintained()["ducklake/op_outputs_dropped"] == 0
    move_clock(monkeypatch, timedelta(days=31))
    assert "ducklake/op_outputs_dropped" not in maintained(dry_run=True)
    assert len(lake.tables()) == 5
    assert maintained()["ducklake/op_outputs_dropped"] == 1
    assert {(table.schema, table.table) for table in lake.tables()} == {
        ("main", "orders"),
        ("dagster_outputs", kept[0]),
        ("dagster_outputs", "mine"),
        ("copies", made),
    }
    assert {table.table for table in lake.tables()} == remaining
    assert drop_op_outputs(lake) == []


def test_op_outputs_younger_than_a_day_cannot_be_dropped(resource: DuckLakeResource) -> None:
    with pytest.raises(MaintenanceFloorError, match="at least 1 day"):
        drop_op_outputs(resource.lake(), timedelta(hours=1))
    with pytest.raises(MaintenanceFloorError, match="at least 1 day"):
        build_maintenance_definitions(op_outputs_older_than=timedelta(hours=1))
