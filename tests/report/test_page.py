"""The report page is one file that needs no network and escapes all names; Chromium renders it here."""

import os
import re
from html import escape
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_orch import CommitInfo, DuckLake
from ducklake_orch.maintenance.run_log import note_begin, note_end
from tests.servers.base import ServerUnavailable
from tests.servers.chromium import Chromium, Opened, open_page
from tests.support.backends import on_sqlite
from tests.support.command_line import run
from tests.support.daily_rows import days
from tests.support.worn_lakes import worn

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


def html_of(page: Path) -> str:
    return page.read_text("utf-8")


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
    click = "[...document.querySelectorAll('#list th button')].find(head => head.textContent === 'files').click();"
    by_files = names(opened(page, click).dom)
    assert by_files[0] == "main.orders"
    assert len(by_files) == 2
    assert names(opened(page, click).dom) == by_files[::-1], "a second click reverses the order"
    script = "const find = document.getElementById('find'); find.value = 'ORD'; find.dispatchEvent(new Event('input'))"
    assert names(opened(page, script).dom) == ["main.orders"]


@on_sqlite
def test_what_needs_attention_comes_first_and_worst_first(lake: DuckLake) -> None:
    worn(lake)
    policy = {"health": {"delete_share": (0.1, 0.2), "write_age": ("0s", "1 day")}}
    html = lake.report(policy).to_html()
    first = html[html.index("<main>") : html.index("</section>")]
    items = re.findall(r"badge (\w+).*?<strong>(.*?)</strong> (.*?)<", first)
    assert [item[:2] for item in items] == [("bad", "main.d"), *(("warn", f"main.{name}") for name in "dit")]
    assert items[0][2] == "25% of the stored rows are deleted; the threshold is 20%"
    assert "<code>ducklake-orch maintain --operation rewrite --table main.d</code>" in first


@on_sqlite
def test_a_lake_without_findings_needs_no_attention(lake: DuckLake) -> None:
    days(lake, "orders", 1)
    assert "Nothing: no figure of the lake and of 1 table has reached its threshold." in lake.report().to_html()


@on_sqlite
def test_a_failed_maintenance_run_needs_attention(lake: DuckLake) -> None:
    days(lake, "orders", 1)
    note_begin(lake.config, "first")
    note_begin(lake.config, "second")
    note_end(lake.config, "second", "error", {})
    assert "Steps of the last maintenance run failed" in lake.report().to_html()
    lake.maintain().raise_for_error()
    assert "the last maintenance run" not in lake.report().to_html()


@on_sqlite
def test_each_table_shows_its_last_write_against_the_expectation(lake: DuckLake) -> None:
    days(lake, "orders", 1)
    days(lake, "other", 1)
    expected = {"overrides": {"orders": {"health": {"write_age": ("26 hours", "2 days")}}}}
    html = lake.report(expected).to_html()
    assert html.count("expected within 26 h") == 1


@on_sqlite
def test_figures_that_are_zero_and_empty_tables_are_folded(page: Path, lake: DuckLake) -> None:
    html = page.read_text("utf-8")
    assert re.findall(r"<th[^>]*><button[^>]*>(.*?)<", html) == [
        *("table", "health", "last write", "rows", "size", "growth", "files")
    ]
    assert "<dt>Inlined rows</dt>" not in html
    lake.execute("CREATE TABLE empty (v INTEGER)").raise_for_error()
    page.write_text(lake.report().to_html(), encoding="utf-8")
    displayed = "document.title = [...document.querySelectorAll('tr.empty')].map(row => getComputedStyle(row).display)"
    assert "<title>none</title>" in opened(page, displayed).dom
    assert "Show 1 empty table" in html_of(page)
    assert "<title>table-row</title>" in opened(page, f"document.getElementById('all').click(); {displayed}").dom


@on_sqlite
def test_a_phone_shows_the_page_without_scrolling_sideways(page: Path) -> None:
    # The windows of headless Chromium are at least 500 pixels wide, so the page is opened in a frame.
    html = page.read_text("utf-8")
    opens = "<script>document.querySelectorAll('details').forEach(part => part.open = true);"
    opens += "document.querySelector('[data-table]').click()</script></body>"
    frame = f'<iframe style="width: 400px" srcdoc="{escape(html.replace("</body>", opens))}"></iframe>'
    width = "document.title = document.querySelector('iframe').contentDocument.documentElement.scrollWidth"
    page.write_text(f"<!doctype html><title></title>{frame}<script>onload = () => {width}</script>", encoding="utf-8")
    assert "<title>400</title>" in open_page(page).dom


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
    assert run("report", *given, "--json", "--host-url", "dagster").code == 2
    assert run("report", *given, "--json", "--host-url", "dagster=https://dagster.example.com").code == 0
    assert run("report", *given, "--html", str(tmp_path / "no" / "out.html")).code == 2
    assert '"main.orders"' in run("report", *given, "--json").out
