"""Start a Spark session for one machine: find Java, set UTC, reduce logging, and use this Python in the workers."""

import os
import sys
import tempfile
import warnings
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ducklake_orch.errors import MissingExtraError
from ducklake_orch.install_commands import install_extra, install_packages, pip
from ducklake_orch.spark.java_home import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_SESSION_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    # Otherwise Spark lists the files of a plan with one task each: 9 s for 3000 files instead of half a second.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
}
_LOCAL_SETTINGS = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


def local_session(
    app_name: str = "ducklake-orch", *, master: str | None = None, conf: Mapping[str, Any] | None = None
) -> "SparkSession":
    """Return the Spark session of this process, or start one with suitable settings.

    Args:
        app_name: The application's name.
        master: Where Spark runs, such as `local[4]`; by default the master given to `spark-submit`, else all cores of
            this machine.
        conf: Further settings, which override the defaults of ducklake-orch.
    """
    check_pyspark()
    from pyspark.sql import SparkSession

    if (running := SparkSession.getActiveSession()) is not None:
        return running
    find_java()
    # By default workers use the first `python3` on the PATH, which may lack duckdb.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    if master is not None or not _is_submitted():
        builder = builder.master(master or "local[*]")
    here = (master or "local").startswith("local")
    if here:
        # Spark resolves its own host name, which takes seconds without a network.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for name, value in (_defaults(here=here) | dict(conf or {})).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _is_submitted() -> bool:
    """Whether `spark-submit` started this process: its JVM runs already and knows its master."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _defaults(*, here: bool) -> dict[str, str]:
    # Executors on other machines must reach the driver.
    settings = (_LOCAL_SETTINGS if here else {}) | _machine_settings() | _SESSION_SETTINGS
    if _is_submitted():
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()
        given = dict(SparkConf().getAll())
        # Executors on other machines must reach the driver, and settings that the user gave are not overridden.
        settings = {name: value for name, value in _SESSION_SETTINGS.items() if name not in given}
    return settings


def _machine_settings() -> dict[str, str]:
    log = Path(__file__).with_name("log4j2.properties")
    return {
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log.as_uri()}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
        "spark.sql.shuffle.partitions": str(max(os.cpu_count() or 1, 2)),
        "spark.sql.warehouse.dir": tempfile.gettempdir(),
    }


def check_pyspark() -> None:
    """Raise if PySpark is missing, and warn if pyspark-client replaces it, before Spark fails less clearly."""
    if find_spec("pyspark") is None:
        raise MissingExtraError("PySpark is not installed.", remedy=install_extra("spark"))
    try:
        client = version("pyspark-client")
    except PackageNotFoundError:
        return
    # Both install the folder `pyspark`, and the client's version has no engine.
    warnings.warn(
        f"pyspark-client {client} is installed over pyspark, so only Spark Connect works. For a local session:"
        f" {pip()} uninstall pyspark-client && {install_packages('pyspark', reinstall=True)}",
        stacklevel=3,
    )


def with_settings(frame: Any, settings: Mapping[str, str]) -> Any:
    """Return a classic DataFrame that is planned and run by a copy of its session with other settings.

    The DataFrame's own session is not changed, which concurrent users may need. Check `has_a_copy` first.
    """
    from pyspark.sql import DataFrame

    java = frame._jdf
    session = java.sparkSession().cloneSession()
    for name, value in settings.items():
        session.conf().set(name, value)
    of_rows = frame.sparkSession._jvm.org.apache.spark.sql.classic.Dataset.ofRows
    return DataFrame(of_rows(session, java.logicalPlan()), frame.sparkSession)


def has_a_copy(frame: Any) -> bool:
    """Whether a copy of its session would run a DataFrame exactly as its own session does.

    A copy does not notify observers of the DataFrame and does not know which other catalog is in use. Spark Connect has
    no copies.
    """
    if not hasattr(frame, "_jdf") or plan_has(frame, "COLLECT_METRICS"):
        return False
    catalog = frame._jdf.sparkSession().sessionState().catalogManager().currentCatalog()
    return str(catalog.name()) == "spark_catalog"


def plan_has(frame: Any, pattern: str) -> bool:
    """Whether the plan of a classic DataFrame contains a tree pattern, by Spark's name for it."""
    known = frame.sparkSession._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    return bool(frame._jdf.logicalPlan().containsPattern(known.withName(pattern)))


def is_local(spark: Any) -> bool:
    """Whether the tasks certainly run on this machine."""
    context = getattr(spark, "_sc", None)
    return context is not None and str(context.master).startswith("local")
