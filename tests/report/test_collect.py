"""The report lists the tables, partitions, changes and authors of a lake, also for changes of other engines."""

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.catalog.metadata import Metadata
from ducklake_orch.errors import ConfigError
from ducklake_orch.report.history import PERIODS
from tests.support.backends import MYSQL, Backend, catalogs, on_sqlite
from tests.support.daily_rows import FIRST, days
from tests.support.worn_lakes import ALL_OF_IT, metadata, worn


@catalogs()
def test_the_report_has_tables_partitions_and_history_and_changes_nothing(backend: Backend, lake: DuckLake) -> None:
    days(lake, "s", 4, author="the pipeline")
    worn(lake)
    lake.maintain(ALL_OF_IT, operations=["merge"]).raise_for_error()
    before = metadata(lake)
    report = lake.report()
    assert metadata(lake) == before
    assert set(report.ids) == {"main.s", "main.t", "main.d", "main.i"}
    assert {name: len(cells) for name, cells in report.partitions.items()} == {"main.s": 4}
    cells = report.partitions["main.s"]
    assert [(cell.label, cell.files, cell.rows) for cell in cells] == [
        (f"day = 2026-11-0{number}", 1, 10 * number) for number in range(1, 5)
    ]
    past = report.history
    assert sum(sum(period.values()) for period in past.periods) == len(lake.snapshots())
    kinds = {
        kind: sum(period.get(kind, 0) for period in past.periods) for kind in ("data", "definitions", "maintenance")
    }
    assert kinds["maintenance"] == 1
    assert kinds["data"] == 4 + 5 + 2 + 1
    assert {writer.author: (writer.commits, writer.processes) for writer in report.writers.by_author}[
        "the pipeline"
    ] == (4, 1)
    assert {part.operation: part.done.get("files_in", 0) for part in report.upkeep}["merge"] == 5
    sizes = {table.table: table.metrics["bytes"] for table in report.health.tables}
    grown = {name: past.growth[number][-1] for name, number in report.ids.items() if number in past.growth}
    assert grown == {name: size for name, size in sizes.items() if size}
    assert all(len(sequence) == PERIODS for sequence in past.growth.values())
    assert past.total_growth[-1] == report.health.lake.metrics["bytes"]
    assert [snapshot.snapshot_id for snapshot in past.recent] == [snapshot.snapshot_id for snapshot in lake.snapshots()]
    assert [run.status for run in report.runs] == ["ok"]
    assert "the pipeline" in report.to_html()
    if backend.catalog is not MYSQL:  # the engine inlines no rows on MySQL
        assert report.health.lake.metrics["inlined_rows"] == 3


@on_sqlite
def test_bytes_that_only_history_holds_are_freed_by_expiry(lake: DuckLake) -> None:
    days(lake, "t", 1)
    old = lake.table("t").files()[0].bytes
    assert lake.report().past_bytes == 0
    lake.write(pa.table({"day": [FIRST], "v": [1]}), "t", mode="overwrite")
    report = lake.report()
    past = report.history.past[report.ids["main.t"]]
    assert (past.files, past.bytes, report.past_bytes) == (1, old, old)
    lake.maintain(ALL_OF_IT, operations=["expire"]).raise_for_error()
    assert lake.report().past_bytes == 0


@on_sqlite
def test_a_dropped_table_may_hold_bytes_of_history(lake: DuckLake) -> None:
    days(lake, "gone", 2)
    lake.execute("DROP TABLE gone").raise_for_error()
    report = lake.report()
    assert report.history.total_growth[-1] == 0
    assert [past.files for past in report.history.past.values()] == [2]


@on_sqlite
def test_changes_name_dropped_tables(lake: DuckLake) -> None:
    days(lake, "old", 1)
    number = lake.report().ids["main.old"]
    lake.execute("DROP TABLE old").raise_for_error()
    report = lake.report()
    assert report.ids == {}
    assert report.history.names[number] == "main.old"


@on_sqlite
def test_a_table_name_is_not_mistaken_for_a_maintenance_operation(lake: DuckLake) -> None:
    lake.execute('CREATE TABLE ",merge_adjacent:1" (v INTEGER)').raise_for_error()
    assert sum(period.get("maintenance", 0) for period in lake.report().history.periods) == 0


@on_sqlite
def test_many_partitions_are_grouped_with_their_neighbours(lake: DuckLake) -> None:
    lake.write(pa.table({"p": list(range(1500))}), "t", mode="append", partition_by=["p"])
    cells = lake.report().partitions["main.t"]
    assert len(cells) == 500
    assert (cells[0].label, cells[0].partitions, cells[0].files) == ("p = 0 … p = 2", 3, 3)
    assert sum(cell.rows for cell in cells) == 1500


@on_sqlite
def test_the_number_of_queries_is_independent_of_the_number_of_tables(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries_run: list[str] = []
    rows = Metadata.rows

    def counting(self: Metadata, sql: str) -> list[tuple[object, ...]]:
        queries_run.append(sql)
        return rows(self, sql)

    monkeypatch.setattr(Metadata, "rows", counting)
    counts = []
    for start, end in ((0, 2), (2, 40)):
        for number in range(start, end):
            lake.write(pa.table({"v": [number]}), f"t{number}", mode="append")
        queries_run.clear()
        lake.report()
        counts.append(len(queries_run))
    assert counts[0] == counts[1]


@on_sqlite
def test_a_negative_number_of_snapshots_is_refused(lake: DuckLake) -> None:
    lake.ensure_exists()
    with pytest.raises(ConfigError, match="negative"):
        lake.report(snapshots=-1)
    assert lake.report(snapshots=0).history.recent == []
