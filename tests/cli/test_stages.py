"""`ducklake-orch stages`, `diff`, `publish` and `discard`."""

import pyarrow as pa

from ducklake_orch import DuckLake
from tests.support.command_line import run


def test_a_stage_is_listed_shown_and_published(lake: DuckLake) -> None:
    assert run("stages").out.strip() == "There are no stages."
    lake.stage("nightly", author="me").delete("numbers", "n < 7")
    listed = run("stages")
    assert all(word in listed.out for word in ("nightly", "open", "main.numbers", "me"))
    (stage,) = run("stages", "--json").json["stages"]
    assert (stage["name"], stage["rows_removed"] - stage["rows_added"]) == ("nightly", 2)
    shown = run("diff", "nightly", "numbers", "--json").json
    assert [(row["change_type"], row["n"]) for row in shown["changes"]] == [("delete", 5), ("delete", 6)]
    assert "1 more; --limit shows more" in run("diff", "nightly", "numbers", "--limit", "1").out
    published = run("publish", "nightly", "--message", "checked")
    assert "is published as snapshot" in published.out
    assert "was already published" in run("publish", "nightly").out
    assert lake.table("numbers").count() == 13
    assert lake.snapshots(limit=1)[0].message == "checked"


def test_a_discarded_stage_is_gone(lake: DuckLake) -> None:
    lake.stage("nightly").write(pa.table({"n": [99]}), "more", mode="append")
    assert "is discarded" in run("discard", "nightly").out
    assert run("stages", "--json").json == {"stages": []}
    assert not lake.exists("more")
    missing = run("publish", "nightly")
    assert missing.code != 0
    assert "There is no stage `nightly`" in missing.err
