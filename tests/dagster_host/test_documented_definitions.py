"""The Dagster files in README and docs load as code locations, as they are printed."""

from pathlib import Path

import dagster as dg
import pytest
from dagster._core.workspace.autodiscovery import loadable_targets_from_python_file

from tests.docs.pages import PAGES, all_blocks, name_of
from tests.docs.test_pages import GIVEN

FILES = [
    pytest.param(page, block.code, id=f"{name_of(page)}:{block.line}")
    for page in PAGES
    for block in all_blocks(page)
    if block.language == "python" and "import dagster" in block.code and "defs = " in block.code
]


@pytest.mark.parametrize(("page", "code"), FILES)
def test_a_dagster_file_on_a_page_loads_as_a_code_location(
    page: Path, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(GIVEN.get(name_of(page), ""), f"given for {name_of(page)}", "exec"), {})
    file = tmp_path / "definitions.py"
    file.write_text(code, "utf-8")
    # What `dagster dev -f` and `dagster definitions validate -f` call: it refuses two `Definitions` in a module.
    (target,) = loadable_targets_from_python_file(str(file), str(tmp_path))
    assert isinstance(target.target_definition, dg.Definitions)
    dg.Definitions.validate_loadable(target.target_definition)


def test_readme_and_the_first_hour_are_among_these_files() -> None:
    pages = {name_of(parameter.values[0]) for parameter in FILES}  # type: ignore[arg-type]  # a page
    assert {"README.md", "start/dagster.md"} <= pages
