"""Fixtures of the unit tests."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def toml(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that writes a configuration file."""

    def write(text: str) -> Path:
        path = tmp_path / "ducklake.toml"
        path.write_text(text)
        return path

    return write
