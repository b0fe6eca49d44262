"""Errors: two families, messages that survive a process boundary, a form for results."""

import inspect
import json
import pickle

import pytest

from ducklake_orch import errors
from ducklake_orch.errors import DuckLakeOrchError, TerminalError, TransientError

ALL = [
    item
    for _, item in inspect.getmembers(errors, inspect.isclass)
    if issubclass(item, DuckLakeOrchError) and item is not DuckLakeOrchError
]


@pytest.mark.parametrize("kind", ALL)
class TestEveryError:
    def test_is_of_one_family(self, kind: type[DuckLakeOrchError]) -> None:
        assert issubclass(kind, TransientError) != issubclass(kind, TerminalError)
        assert kind("x").retryable is issubclass(kind, TransientError)

    def test_survives_pickling(self, kind: type[DuckLakeOrchError]) -> None:
        error = kind("It broke.", remedy="Mend it.")
        error.__dict__["sql"] = "SELECT 1"
        error.add_note("on the way")
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is kind
        assert str(copy) == "It broke. Mend it."
        assert (copy.message, copy.remedy, copy.__dict__["sql"]) == ("It broke.", "Mend it.", "SELECT 1")
        assert copy.__notes__ == ["on the way"]

    def test_has_a_form_for_results(self, kind: type[DuckLakeOrchError]) -> None:
        form = kind("It broke.", remedy="Mend it.").to_dict()
        assert json.loads(json.dumps(form)) == form
        assert form == {
            "type": kind.__name__,
            "family": kind.family,
            "message": "It broke.",
            "remedy": "Mend it.",
            "retryable": kind.family == "transient",
            "docs": f"docs/errors.md#{kind.__name__.lower()}",
        }


def test_the_text_is_message_and_remedy() -> None:
    assert str(TerminalError("It broke.", remedy="Mend it.")) == "It broke. Mend it."
    assert str(TerminalError("It broke.")) == "It broke."


def test_an_error_that_somebody_derives_is_explained_where_its_base_is() -> None:
    class NotMine(errors.LakeLockedError):
        pass

    assert NotMine("x").docs == "docs/errors.md#lakelockederror"


def test_a_missing_extra_is_an_import_error() -> None:
    assert issubclass(errors.MissingExtraError, ImportError)


def test_all_of_them_are_ours() -> None:
    assert all(issubclass(kind, DuckLakeOrchError) for kind in ALL)
    assert not issubclass(errors.OptionDriftWarning, DuckLakeOrchError)
