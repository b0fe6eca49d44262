"""`ducklake-orch tag`, `tags` and `untag`, and the option `--tag`."""

from ducklake_orch import DuckLake
from tests.support.command_line import run


def test_a_named_snapshot_is_listed_read_restored_and_forgotten(lake: DuckLake) -> None:
    assert run("tags").out.strip() == "There are no tags."
    latest = lake.snapshots(limit=1)[0].snapshot_id
    assert run("tag", "q3").out.strip() == f"q3: snapshot {latest}"
    assert (
        run("tag", "old", "--snapshot", "1", "--keep-until", "2999-01-01T00:00+00:00", "--json").json["snapshot_id"]
        == 1
    )
    rows = lake.table("numbers").count()
    lake.delete("numbers", "n < 10")
    listed = run("tags").out
    assert all(word in listed for word in ("q3", "old", "2999-01-01 00:00:00"))
    assert [tag["name"] for tag in run("tags", "--json").json] == ["old", "q3"]
    counted = run("sql", "--tag", "q3", "--json", "SELECT count(*) AS n FROM numbers").json
    assert counted["commands"][0]["rows"] == [{"n": rows}]
    assert str(rows) in run("tables", "--tag", "q3").out
    assert len(run("files", "numbers", "--tag", "q3", "--json").json) > 0
    assert run("rollback", "numbers", "--tag", "q3").code == 0
    assert lake.table("numbers").count() == rows
    assert run("tag", "q3").code != 0
    assert run("tag", "q3", "--replace").code == 0
    assert run("untag", "old").out.strip() == "The tag `old` is removed."
    assert "There is no tag `old`" in run("untag", "old").err
