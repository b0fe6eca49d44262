"""The `python` blocks of README and docs run unchanged, in order, page by page, in an empty folder.

A `py` block is an excerpt that needs a server or a frame of the reader. It must be valid Python, and mypy checks that
the names in it exist (`tests.docs.excerpts`). `GIVEN` creates what a page assumes, such as a lake with tables.
"""

import re
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from ducklake_orch import DuckLake
from tests.docs.pages import PAGES, blocks, is_dag, name_of

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
NEEDS |= {"start/dagster.md": "dagster", "dagster.md": "dagster"}


def pages(*languages: str) -> pytest.MarkDecorator:
    """Parametrize a test over the pages with blocks in these languages."""
    pages_with_blocks = [page for page in PAGES if blocks(page, *languages)]
    return pytest.mark.parametrize("page", pages_with_blocks, ids=name_of)


# Dagster's own Pipes client raises these.
@pytest.mark.filterwarnings("ignore:AssetExecutionContext.run_id is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*expected_writer_count")
@pages("python")
def test_the_python_blocks_of_a_page_run_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = NEEDS.get(name_of(page))
    if needed is not None and find_spec(needed) is None:
        pytest.skip(f"{name_of(page)} needs {needed}")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__docs__"}
    exec(compile(GIVEN.get(name_of(page), ""), f"given for {name_of(page)}", "exec"), namespace)
    for line, code in blocks(page, "python"):
        if is_dag(code):
            continue  # `tests/airflow_host` runs them
        # Line numbers in a traceback are those of the page.
        exec(compile("\n" * line + code, str(page), "exec"), namespace)


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
