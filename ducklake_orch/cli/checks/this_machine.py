"""Checks of this machine: the package, Python, DuckDB and its extensions."""

import platform
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import TYPE_CHECKING

from ducklake_orch import __version__
from ducklake_orch.cli.checks.check import Check
from ducklake_orch.errors import ExtensionMissingError
from ducklake_orch.install_commands import install_packages

if TYPE_CHECKING:
    import duckdb

BASIC_EXTENSIONS = ("ducklake", "sqlite_scanner", "httpfs")


def machine_checks(extensions: Sequence[str]) -> Iterator[Check]:
    """Check the installed packages and extensions.

    Args:
        extensions: The required DuckDB extensions.
    """
    yield Check("package", "ok", f"ducklake-orch {__version__}")
    yield Check("python", "ok", f"{platform.python_version()} at {sys.executable}, {platform.platform()}")
    try:
        import duckdb
    except ImportError as error:
        yield Check("duckdb", "fail", str(error), install_packages("duckdb", reinstall=True))
        return
    yield Check("duckdb", "ok", duckdb.__version__)
    with duckdb.connect(":memory:") as con:
        for name in extensions:
            yield _extension(con, name)


def _extension(con: "duckdb.DuckDBPyConnection", name: str) -> Check:
    import duckdb

    from ducklake_orch.engine.extensions import find_wheel, load_extension

    title = f"extension {name}"
    try:
        source = load_extension(con, name)
    except ExtensionMissingError as error:
        return Check.failed(title, error)
    except duckdb.Error as error:
        return Check(
            title, "fail", str(error), install_packages(f"duckdb-extension-{name.replace('_', '-')}", reinstall=True)
        )
    if source == "wheel":
        wheel = find_wheel(name)
        return Check(title, "ok", f"{_wheel_version(name)} from the wheel {wheel.file if wheel else ''}")
    sql = "SELECT extension_name, extension_version, install_path FROM duckdb_extensions() "
    known = {row[0]: row[1:] for row in con.execute(sql).fetchall()}
    version, path = known.get(name, ("", ""))
    where = "installed" if source == "installed" else "just installed from DuckDB's repository"
    return Check(title, "ok", f"{version}, {where} at {path}")


def _wheel_version(name: str) -> str:
    try:
        return metadata.version(f"duckdb-extension-{name.replace('_', '-')}")
    except metadata.PackageNotFoundError:
        return "of unknown version"
