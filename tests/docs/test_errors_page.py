"""Every error class has a section on the errors page, at the anchor that its instances link to."""

import inspect
import re

import pytest

from ducklake_orch import errors
from tests.docs.pages import REPOSITORY

PAGE = REPOSITORY / "docs" / "errors.md"
KINDS = {
    name: item
    for name, item in inspect.getmembers(errors, inspect.isclass)
    if issubclass(item, errors.DuckLakeOrchError | UserWarning) and item.__module__ == errors.__name__
}
# The sections of the page by the names of their classes.
SECTIONS = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("name", KINDS)
def test_every_error_class_has_a_section_with_symptom_and_remedy(name: str) -> None:
    kind, text = KINDS[name], SECTIONS.get(name, "")
    assert "- **Seen**: " in text
    assert "- **Do**: " in text
    if issubclass(kind, errors.TransientError | errors.TerminalError) and kind.__base__ is not errors.DuckLakeOrchError:
        assert text.strip().startswith(f"{kind.family.capitalize()}. ")
    if issubclass(kind, errors.DuckLakeOrchError):
        assert kind("x").docs == f"docs/errors.md#{name.lower()}"
        assert (REPOSITORY / kind("x").docs.partition("#")[0]).samefile(PAGE)


def test_every_section_describes_an_existing_class() -> None:
    assert set(SECTIONS) == set(KINDS)


def test_the_section_of_a_subclass_names_its_base() -> None:
    for name, kind in KINDS.items():
        base = kind.__base__
        assert base is not None
        if base.__name__ in KINDS and base not in (
            errors.DuckLakeOrchError,
            errors.TerminalError,
            errors.TransientError,
        ):
            assert f"A `{base.__name__}`." in SECTIONS[name], name
