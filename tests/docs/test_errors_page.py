"""Every error class has a section on the errors page, at the anchor that its instances link to."""

import inspect
import re

import pytest

from ducklake_orch import errors
from tests.docs.pages import REPOSITORY
from tests.support.command_line import run

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
        assert text.strip().startswith(f"`{kind.code}` · {kind.family.capitalize()}. ")
    if issubclass(kind, errors.DuckLakeOrchError):
        assert kind("x").docs == f"docs/errors.md#{name.lower()}"
        assert (REPOSITORY / kind("x").docs.partition("#")[0]).samefile(PAGE)


def test_every_class_declares_a_code_of_its_own() -> None:
    codes = {name: vars(kind)["code"] for name, kind in KINDS.items()}
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in codes.values())
    assert len(set(codes.values())) == len(codes)


@pytest.mark.parametrize("name", KINDS)
def test_explain_prints_the_section_of_every_class(name: str) -> None:
    code = vars(KINDS[name])["code"]
    answer = run("explain", code)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith(f"{name} ({code})\n\n")
    assert "\nSeen\n" in answer.out
    assert "\nDo\n" in answer.out
    assert max(map(len, answer.out.splitlines())) <= 80
    assert not re.search(r"\*\*|\]\(|``", answer.out)
    # All words of the section are there.
    words = re.findall(r"\w{4,}", re.sub(r"\]\([^)]*\)", "", SECTIONS[name]))
    assert {word.lower() for word in words} <= {word.lower() for word in re.findall(r"\w{4,}", answer.out)}
    assert run("explain", name.upper()).out == answer.out


def test_explain_without_a_code_lists_all_with_a_line_each() -> None:
    lines = run("explain").out.splitlines()
    assert [line.split()[0] for line in lines] == [vars(KINDS[name])["code"] for name in SECTIONS]
    assert all(len(line.split()) > 3 for line in lines)
    assert [each["code"] for each in run("explain", "--json").json] == [line.split()[0] for line in lines]


@pytest.mark.parametrize(
    ("asked", "near"), [("lake-lock", "lake-locked"), ("expired", "history-expired"), ("SlowDown", "storage-busy")]
)
def test_explain_names_near_codes_of_an_unknown_one(asked: str, near: str) -> None:
    answer = run("explain", asked)
    assert (answer.code, answer.out) == (2, "")
    assert f"no error code `{asked}`" in answer.err
    assert f"`{near}`" in answer.err


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
