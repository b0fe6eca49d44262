"""The report lists who wrote to the lake and where writers meet, from what commits and leases record."""

import pyarrow as pa

from ducklake_orch import CommitInfo, DuckLake
from ducklake_orch.catalog.commit import record_lease
from ducklake_orch.engine.exactly_once import Write
from ducklake_orch.report.writers import Writer
from tests.support.backends import on_sqlite
from tests.support.daily_rows import days


def by_author(lake: DuckLake) -> dict[str | None, Writer]:
    return {writer.author: writer for writer in lake.report().writers.by_author}


@on_sqlite
def test_each_author_has_its_commits_and_processes(lake: DuckLake) -> None:
    days(lake, "t", 3, author="the pipeline")
    days(lake, "u", 1, author="ana")
    found = by_author(lake)
    pipeline = found["the pipeline"]
    assert (pipeline.commits, pipeline.processes, pipeline.outside, pipeline.retried) == (3, 1, 0, 0)
    assert found["ana"].last >= pipeline.last
    assert sum(writer.commits for writer in found.values()) == len(lake.snapshots())


@on_sqlite
def test_commits_of_other_engines_are_counted_apart(lake: DuckLake) -> None:
    lake.write(pa.table({"v": [1]}), "t", mode="append")
    assert by_author(lake)[None].outside == 0
    with lake.connect() as con:
        con.execute("INSERT INTO t VALUES (2)")
    assert by_author(lake)[None].outside == 1


@on_sqlite
def test_commits_of_retried_airflow_tasks_are_counted(lake: DuckLake) -> None:
    for attempt in (1, 2):
        info = CommitInfo("airflow", extra={"airflow": {"run_id": "r", "try_number": attempt}})
        lake.write(pa.table({"v": [attempt]}), "t", mode="append", commit=info)
    assert (by_author(lake)["airflow"].commits, by_author(lake)["airflow"].retried) == (2, 1)


@on_sqlite
def test_extra_information_of_other_programs_may_be_any_text(lake: DuckLake) -> None:
    lake.write(pa.table({"v": [1]}), "t", mode="append")
    with lake.connect() as con:
        con.execute("BEGIN")
        con.execute("INSERT INTO t VALUES (2)")
        con.execute(f"CALL {lake.config.alias}.set_commit_message('other', 'x', extra_info => 'no JSON {{')")
        con.execute("COMMIT")
    assert by_author(lake)["other"].outside == 1
    assert "no JSON {" in lake.report().to_html()


@on_sqlite
def test_a_running_write_is_listed_with_the_commits_that_have_passed_it(lake: DuckLake) -> None:
    days(lake, "t", 1)
    record_lease(lake.config, Write("the backfill of `t`"), lake.snapshots(limit=1)[0].snapshot_id)
    days(lake, "u", 2)
    (running,) = lake.report().writers.running
    assert running.passed == 2
    assert running.owner.startswith("the backfill of `t`, by process ")
    assert "2 commits since it was planned" in lake.report().to_html()


@on_sqlite
def test_the_busiest_minute_names_its_commits(lake: DuckLake) -> None:
    days(lake, "t", 3)
    found = lake.report().writers
    assert found.busiest_commits >= 2  # the three commits lie in at most two minutes
    assert found.busiest_processes == 1
