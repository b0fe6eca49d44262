"""Load DuckDB extensions from installed wheels, or from DuckDB's own folder or repository: `load_extension`."""

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
