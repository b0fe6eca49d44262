"""`ducklake-orch workload`."""

from ducklake_orch import DuckLake
from ducklake_orch.catalog.scan import write_reads
from tests.support.command_line import run


def test_the_columns_of_conditions_are_listed_with_their_files(lake: DuckLake) -> None:
    assert "Set `workload = true`" in run("workload").out
    counting = DuckLake(lake.config.model_copy(update={"workload": True}))
    for _ in range(3):
        counting.read("numbers", where="n = 1")
    write_reads(counting.config, now=True)
    lines = [line.split() for line in run("workload").out.splitlines()]
    assert ["main.numbers", "n", "equal", "3", "1.0", "1.0"] in lines
    assert [entry["reads"] for entry in run("workload", "--json", "--days", "1").json] == [3, 3]
