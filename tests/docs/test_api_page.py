"""The API page describes everything that users import."""

import re
from importlib.util import find_spec

import pytest

import ducklake_orch
import ducklake_orch.airflow
from tests.docs.pages import DOCS

PAGE = (DOCS / "api.md").read_text("utf-8")


def test_the_page_describes_every_export_of_the_package_and_of_airflow() -> None:
    exports = {*ducklake_orch.__all__, *ducklake_orch.airflow.__all__}
    assert exports - {"__version__", *re.findall(r"\w+", PAGE)} == set()


@pytest.mark.skipif(find_spec("dagster") is None, reason="Dagster is not installed")
def test_the_page_describes_every_export_for_dagster() -> None:
    import ducklake_orch.dagster

    assert set(ducklake_orch.dagster.__all__) - set(re.findall(r"\w+", PAGE)) == set()
