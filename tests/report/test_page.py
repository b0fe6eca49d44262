"""The page is one file that needs no network; whatever a table is named, it stays text. In Chromium, for real."""

import os
import re
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_orch import CommitInfo, DuckLake
from tests.servers.base import ServerUnavailable
from tests.servers.chromium import Chromium, Opened, open_page
from tests.support.backends import on_sqlite
from tests.support.command_line import run
from tests.support.daily_rows import days

HOSTILE = "<script>document.title='taken'</script>"


@pytest.fixture
def page(lake: DuckLake, tmp_path: Path) -> Path:
    """A page about a lake whose names, authors and messages are markup."""
    try:
        Chromium.find_program("chromium")
    except ServerUnavailable as error:
        if os.environ.get("REQUIRE_SERVERS") == "1":
            raise
        pytest.skip(str(error))
    days(lake, "orders", 9)
    commit = CommitInfo("<img src=x onerror=\"document.title='taken'\">", "</details></script><h1>", {"a": "</script>"})
    data = pa.table({"<b>p</b>": ["</script>", "a"], "v": [1, 2]})
    lake.write(data, f'"{HOSTILE}"', mode="append", partition_by=["<b>p</b>"], commit=commit)
    made = tmp_path / "lake.html"
    made.write_text(lake.report().to_html(), encoding="utf-8")
    return made


def opened(page: Path, script: str = "") -> Opened:
    """Open the page, with a script of a reader's own at its end: clicks, say."""
    page.write_text(page.read_text("utf-8").replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    return open_page(page)


def names(dom: str) -> list[str]:
    """Return the tables that are shown, in order."""
    rows = re.findall(r"<tr( hidden=\"\")?><td data-sort=\"([^\"]*)\"", dom)
    return [name for hidden, name in rows if not hidden]


@on_sqlite
def test_it_renders_without_a_complaint_and_asks_nobody(page: Path) -> None:
    found = opened(page)
    assert found.complaints == []
    assert "main.orders" in found.dom
    assert not re.search(r"(src|href)=\"(?!#|data:)", page.read_text("utf-8"))


@on_sqlite
def test_names_authors_and_messages_stay_text(page: Path) -> None:
    found = opened(page, "document.querySelectorAll('[data-table]').forEach(one => one.click())")
    assert found.complaints == []
    assert "<title>lake: DuckLake report</title>" in found.dom
    assert "<img" not in found.dom
    assert "&lt;script&gt;document.title='taken'&lt;/script&gt;" in found.dom
    assert "&lt;b&gt;p&lt;/b&gt; = &lt;/script&gt;" in found.dom


@on_sqlite
def test_a_table_opens_and_shows_its_files_and_partitions(page: Path) -> None:
    script = "document.querySelector('[data-sort=\"main.orders\"] button').click()"
    found = opened(page, script)
    assert "9 partitions, day = 2026-11-01 to day = 2026-11-09: bytes of each" in found.dom
    assert found.dom.count("<i title=") == 9
    assert "<span>under 1 MiB</span>" in found.dom
    assert 'class="inside"' not in opened(page, script).dom, "a second click closes it"


@on_sqlite
def test_tables_are_sorted_and_found(page: Path) -> None:
    click = "document.querySelectorAll('#list th button')[4].click();"  # by files
    by_files = names(opened(page, click).dom)
    assert by_files[0] == "main.orders"
    assert len(by_files) == 2
    assert names(opened(page, click).dom) == by_files[::-1], "a second click turns it round"
    script = "const find = document.getElementById('find'); find.value = 'ORD'; find.dispatchEvent(new Event('input'))"
    assert names(opened(page, script).dom) == ["main.orders"]


@on_sqlite
def test_an_empty_lake_has_a_page(lake: DuckLake) -> None:
    lake.execute("SELECT 1").raise_for_error()
    html = lake.report().to_html()
    assert "The lake has no tables yet." in html
    assert "No maintenance run is recorded" in html


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    days(lake, "orders", 1)
    given = ["--catalog", lake.config.catalog.to_url(), "--storage", str(tmp_path / "lake.files")]
    done = run("report", *given, "--html", str(tmp_path / "out.html"))
    assert (done.code, "1 tables, ok" in done.out) == (0, True)
    assert (tmp_path / "out.html").read_text("utf-8").startswith("<!doctype html>")
    assert run("report", *given).code == 2
    assert run("report", *given, "--html", str(tmp_path / "no" / "out.html")).code == 2
    assert '"main.orders"' in run("report", *given, "--json").out
