"""What every refusal has in common: one error of ours, with the words that help and without secrets."""

from collections.abc import Callable
from typing import Any

import pytest

from ducklake_orch import errors


def refused(kind: type[errors.DuckLakeOrchError], work: Callable[[], Any], *words: str) -> str:
    """Run what must fail; its one error is of that class, has all those words, and holds no secret."""
    with pytest.raises(errors.DuckLakeOrchError) as caught:
        work()
    text = str(caught.value)
    assert type(caught.value) is kind, text
    for word in words:
        assert word in text
    assert "canary" not in text
    return text
