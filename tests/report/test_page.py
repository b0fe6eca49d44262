"""The report page is one file that needs no network and escapes all names; Chromium renders it here."""

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
    """The page of a lake whose names, authors and messages contain markup."""
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
    page = tmp_path / "lake.html"
    page.write_text(lake.report().to_html(), encoding="utf-8")
    return page


def opened(page: Path, script: str = "") -> Opened:
    """Open the page with a script at its end, such as a click."""
    page.write_text(page.read_text("utf-8").replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    return open_page(page)


def names(dom: str) -> list[str]:
    """Return the visible tables in order."""
    rows = re.findall(r"<tr( hidden=\"\")?><td data-sort=\"([^\"]*)\"", dom)
    return [name for hidden, name in rows if not hidden]


@on_sqlite
def test_the_page_renders_without_console_messages_or_requests(page: Path) -> None:
    rendered = opened(page)
    assert rendered.complaints == []
    assert "main.orders" in rendered.dom
    assert not re.search(r"(src|href)=\"(?!#|data:)", page.read_text("utf-8"))


@on_sqlite
def test_names_authors_and_messages_stay_text(page: Path) -> None:
    rendered = opened(page, "document.querySelectorAll('[data-table]').forEach(one => one.click())")
    assert rendered.complaints == []
    assert "<title>lake: DuckLake report</title>" in rendered.dom
    assert "<img" not in rendered.dom
    assert "&lt;script&gt;document.title='taken'&lt;/script&gt;" in rendered.dom
    assert "&lt;b&gt;p&lt;/b&gt; = &lt;/script&gt;" in rendered.dom


@on_sqlite
def test_a_click_on_a_table_shows_its_files_and_partitions(page: Path) -> None:
    script = "document.querySelector('[data-sort=\"main.orders\"] button').click()"
    rendered = opened(page, script)
    assert "9 partitions, day = 2026-11-01 to day = 2026-11-09: bytes of each" in rendered.dom
    assert rendered.dom.count("<i title=") == 9
    assert "<span>under 1 MiB</span>" in rendered.dom
    assert 'class="inside"' not in opened(page, script).dom, "a second click closes the table"


@on_sqlite
def test_tables_can_be_sorted_and_searched(page: Path) -> None:
    click = "document.querySelectorAll('#list th button')[4].click();"  # by files
    by_files = names(opened(page, click).dom)
    assert by_files[0] == "main.orders"
    assert len(by_files) == 2
    assert names(opened(page, click).dom) == by_files[::-1], "a second click reverses the order"
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
