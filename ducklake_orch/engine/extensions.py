"""Load DuckDB extensions from installed wheels, or from DuckDB's own folder or repository: `open_database`."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import duckdb

from ducklake_orch.engine.quoting import identifier, literal
from ducklake_orch.errors import ExtensionMissingError
from ducklake_orch.install_commands import install_extra, install_packages

# The pip extra of ducklake-orch that installs an extension's wheel; None if ducklake-orch itself depends on it.
_EXTRAS = {
    "ducklake": None,
    "httpfs": None,
    "sqlite_scanner": None,
    "postgres_scanner": "postgres",
    "mysql_scanner": "mysql",
    "aws": "s3",
    "azure": "azure",
    "motherduck": "motherduck",
}


# Files whose signatures this process has checked, as they were then.
_checked: set["_FileState"] = set()


class Wheel(NamedTuple):
    """An extension's wheel: its file for the running engine, if there is one, and the engine versions it supports."""

    file: Path | None
    versions: list[str]


def find_wheel(name: str) -> Wheel | None:
    """Return the installed wheel of an extension."""
    # `find_spec` would take a dotted name for a module in a package.
    spec = find_spec(f"duckdb_extension_{name}") if name.isidentifier() else None
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "extensions"
    file = folder / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    return Wheel(file if file.exists() else None, sorted(path.name for path in folder.glob("v*")))


class _FileState(NamedTuple):
    """A file and what changes when it is written."""

    path: Path
    inode: int
    size: int
    changed_ns: int


def open_database(
    extensions: Iterable[str], settings: Mapping[str, str | int | float | list[str]]
) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB in memory with extensions.

    DuckDB checks the signature of an extension each time it loads it, which takes up to 0.2 s. This process checks each
    file once, and again when it has changed.

    Args:
        extensions: The names of the extensions.
        settings: Settings that DuckDB has to start with.

    Raises:
        ExtensionMissingError: When neither a wheel nor DuckDB's own repository has one.
    """
    settings = {"custom_user_agent": "ducklake-orch", **settings}
    found = {name: _state_of(name) for name in extensions}
    checked = [file for file in found.values() if file is not None and file in _checked]
    if checked and len(checked) == len(found):
        con = duckdb.connect(":memory:", config={**settings, "allow_unsigned_extensions": "true"})
        with suppress(duckdb.Error):
            for file in checked:
                con.execute(f"LOAD {literal(str(file.path))}")
            con.execute("SET GLOBAL allow_unsigned_extensions = false")
            return con
        con.close()
    con = duckdb.connect(":memory:", config=settings)
    try:
        for name, wheel in found.items():
            if load_extension(con, name) == "wheel" and wheel is not None:
                _checked.add(wheel)
    except BaseException:
        con.close()
        raise
    return con


def _state_of(name: str) -> _FileState | None:
    """Return the file of an extension's wheel; None if there is none."""
    wheel = find_wheel(name)
    if wheel is None or wheel.file is None:
        return None
    found = wheel.file.stat()
    return _FileState(wheel.file, found.st_ino, found.st_size, found.st_mtime_ns)


def load_extension(con: duckdb.DuckDBPyConnection, name: str) -> str:
    """Load one extension and return its origin; signature checks stay on.

    Raises:
        ExtensionMissingError: When neither a wheel nor DuckDB's own repository has it.
    """
    wheel = find_wheel(name)
    sources = [("installed", [f"LOAD {identifier(name)}"])]
    sources.append(("repository", [f"INSTALL {identifier(name)}", f"LOAD {identifier(name)}"]))
    if wheel and wheel.file:
        sources.insert(0, ("wheel", [f"LOAD {literal(str(wheel.file))}"]))
    reasons = []
    for origin, statements in sources:
        try:
            for statement in statements:
                con.execute(statement)
        except duckdb.Error as error:
            reasons.append(str(error).strip().splitlines()[0])
        else:
            return origin
    # The first reason is that of the wheel, if one fits; the last is that of the repository.
    raise _missing(name, wheel, reasons[0] if wheel and wheel.file else reasons[-1])


def _missing(name: str, wheel: Wheel | None, reason: str) -> ExtensionMissingError:
    engine = duckdb.__version__
    package = f"duckdb-extension-{name.replace('_', '-')}=={engine}"
    if wheel and not wheel.file:
        return ExtensionMissingError(
            f"The wheel of DuckDB extension `{name}` is for {', '.join(wheel.versions)}, the engine is v{engine}.",
            remedy=f"{install_packages(package)}, or install the duckdb that fits the wheel.",
        )
    if name not in _EXTRAS:
        return ExtensionMissingError(
            f"DuckDB extension `{name}` is not installed and could not be fetched ({reason}).",
            remedy="Check the names in `extensions`.",
        )
    extra = _EXTRAS[name]
    return ExtensionMissingError(
        f"DuckDB extension `{name}` cannot be loaded ({reason}).",
        remedy=install_extra(extra, package)
        if extra and not wheel
        else install_packages(package, reinstall=wheel is not None),
    )
