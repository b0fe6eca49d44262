"""Errors have one of two families, survive pickling, and convert to dicts."""

import inspect
import json
import pickle
import traceback

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
    def test_every_error_has_one_family(self, kind: type[DuckLakeOrchError]) -> None:
        assert issubclass(kind, TransientError) != issubclass(kind, TerminalError)
        # This conflict lasts as long as its stage. It is caught with the others, but not tried again.
        lasts = kind is errors.StageConflictError
        assert kind("x").retryable is (issubclass(kind, TransientError) and not lasts)

    def test_every_error_survives_pickling(self, kind: type[DuckLakeOrchError]) -> None:
        error = kind("It broke.", remedy="Mend it.")
        error.__dict__["sql"] = "SELECT 1"
        error.add_note("on the way")
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is kind
        assert str(copy) == "It broke. Mend it."
        assert (copy.message, copy.remedy, copy.__dict__["sql"]) == ("It broke.", "Mend it.", "SELECT 1")
        assert copy.__notes__ == ["on the way"]

    def test_every_error_converts_to_a_dict(self, kind: type[DuckLakeOrchError]) -> None:
        form = kind("It broke.", remedy="Mend it.").to_dict()
        assert json.loads(json.dumps(form)) == form
        assert form == {
            "type": kind.__name__,
            "code": kind.code,
            "family": kind.family,
            "message": "It broke.",
            "remedy": "Mend it.",
            "retryable": kind.family == "transient",
            "docs": f"docs/errors.md#{kind.__name__.lower()}",
        }


def test_the_text_is_message_and_remedy() -> None:
    assert str(TerminalError("It broke.", remedy="Mend it.")) == "It broke. Mend it."
    assert str(TerminalError("It broke.")) == "It broke."


def test_a_derived_error_links_to_the_documentation_of_its_base() -> None:
    class DerivedError(errors.LakeLockedError):
        pass

    assert DerivedError("x").docs == "docs/errors.md#lakelockederror"


def test_only_the_error_that_a_host_prints_ends_with_the_command_that_explains_it() -> None:
    cause = errors.LakeLockedError("It waited.", remedy="Wait longer.")
    error = pickle.loads(pickle.dumps(errors.StalePlanError("It changed.").with_explain()))
    error.__cause__ = cause
    assert str(error) == "It changed.\nducklake-orch explain stale-plan"
    assert "".join(traceback.format_exception(error)).count("ducklake-orch explain") == 1


def test_a_missing_extra_is_an_import_error() -> None:
    assert issubclass(errors.MissingExtraError, ImportError)


def test_all_errors_derive_from_one_base() -> None:
    assert all(issubclass(kind, DuckLakeOrchError) for kind in ALL)
    assert not issubclass(errors.OptionDriftWarning, DuckLakeOrchError)
