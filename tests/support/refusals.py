"""Checks refusals: one error of ducklake-orch, with helpful words and without secrets."""

from collections.abc import Callable
from typing import Any

import pytest

from ducklake_orch import errors


def refused(kind: type[errors.DuckLakeOrchError], work: Callable[[], Any], *words: str) -> str:
    """Run work that must fail; check that its only error has the class and the words, and holds no secret."""
    with pytest.raises(errors.DuckLakeOrchError) as caught:
        work()
    text = str(caught.value)
    assert type(caught.value) is kind, text
    for word in words:
        assert word in text
    assert "canary" not in text
    return text
