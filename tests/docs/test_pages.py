"""The `python` blocks of README and docs run unchanged, in order, page by page, in an empty folder.

So do the shell commands of the pages in `docs/start`. A `text` block that directly follows a block is what that block
prints, with `...` for the parts that vary; the test compares it. A `py` block is an excerpt that needs a server or a
frame of the reader. It must be valid Python, and mypy checks that the names in it exist (`tests.docs.excerpts`).
`GIVEN` creates what a page assumes, such as a lake with tables.
"""

import re
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from ducklake_orch import DuckLake
from tests.docs.page_run import run_page, runs, same
from tests.docs.pages import PAGES, all_blocks, blocks, name_of

_LAKE = """
import pyarrow as pa
from ducklake_orch import DuckLake

lake = DuckLake.local("./lake")
"""
_ORDERS = (
    _LAKE
    + """
orders = pa.table({"id": [1, 2], "region": ["eu", "us"], "amount": [1.5, 2.5], "price": [3.0, 4.0]})
lake.write(orders, "sales.orders", mode="append")
"""
)
GIVEN = {
    "changes.md": _ORDERS
    + """
lake.update("sales.orders", {"price": "0"}, "id = 1")
from ducklake_orch.spark import local_session
spark = local_session()
""",
    "dagster.md": """
import datetime
import pyarrow as pa
from ducklake_orch import DuckLake

orders = {"day": [datetime.date(2026, 11, 1)] * 2, "region": ["eu", "us"], "price": [3.0, 4.0]}
lake = DuckLake.from_url("shop", catalog="sqlite:///shop.sqlite", storage="./shop.files", create_if_missing=True)
lake.write(pa.table(orders), "raw.orders", mode="append")
""",
    "errors.md": _LAKE + 'lake.create_table("t", {"v": "integer"})',
    "fsck.md": _ORDERS,
    "maintenance.md": _ORDERS,
    "maintenance-runbook.md": _ORDERS,
    "sql.md": _ORDERS,
    "streaming.md": _ORDERS + "seen = 0\n",
    "report.md": 'from ducklake_orch import DuckLake\nDuckLake.local("./demo-lake/lake").execute("SELECT 1")\n',
}
# Modules that a page needs besides ducklake-orch.
NEEDS = dict.fromkeys(["README.md", "spark.md", "changes.md", "start/spark.md"], "pyspark")
NEEDS |= {"start/dagster.md": "dagster", "dagster.md": "dagster", "start/airflow.md": "airflow"}


def pages(*languages: str) -> pytest.MarkDecorator:
    """Parametrize a test over the pages with blocks in these languages."""
    pages_with_blocks = [page for page in PAGES if blocks(page, *languages)]
    return pytest.mark.parametrize("page", pages_with_blocks, ids=name_of)


# Dagster's own Pipes client raises these.
@pytest.mark.filterwarnings("ignore:AssetExecutionContext.run_id is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*expected_writer_count")
@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(runs(page, block) for block in all_blocks(page))], ids=name_of
)
def test_the_blocks_of_a_page_run_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = NEEDS.get(name_of(page))
    if needed is not None and find_spec(needed) is None:
        pytest.skip(f"{name_of(page)} needs {needed}")
    monkeypatch.chdir(tmp_path)
    wrong = run_page(page, GIVEN.get(name_of(page), ""), tmp_path)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("said", "printed", "equal"),
    [
        ("snapshot 1, ... s\n", "snapshot 1, 0.031 s\n", True),
        ("a   b\n", "a   b   \n\n", True),
        ("500 rows\n", "501 rows\n", False),
        ("one\n", "one\ntwo\n", False),
    ],
)
def test_a_result_on_a_page_is_compared(said: str, printed: str, equal: bool) -> None:
    assert same(said, printed) == equal


@pages("py")
def test_an_excerpt_is_valid_python(page: Path) -> None:
    for line, code in blocks(page, "py"):
        compile("\n" * line + code, str(page), "exec")


@pages("toml")
def test_a_configuration_file_on_a_page_is_valid(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _, text in blocks(page, "toml"):
        for name in re.findall(r"\$\{(\w+)\}", text):
            monkeypatch.setenv(name, "x")
        file = tmp_path / "ducklake.toml"
        file.write_text(text if "catalog" in text else f'{text}\n[lakes.archive]\ncatalog = "sqlite:///x.sqlite"\n')
        for lake in tomllib.loads(file.read_text())["lakes"]:
            assert DuckLake.from_toml(file, lake=lake).preview_sql()
