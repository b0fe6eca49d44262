"""Load DuckDB extensions: from the wheels beside duckdb, else from where DuckDB itself keeps or fetches them."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ducklake_orch.errors import ExtensionMissingError

if TYPE_CHECKING:
    import duckdb

# The pip extra of this package that brings an extension's wheel; None: it comes with the package itself.
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
    """An extension's wheel and the file in it that fits the running engine, if there is one."""

    file: Path | None
    versions: list[str]


def find_wheel(name: str) -> Wheel | None:
    """Return the installed wheel of an extension."""
    import duckdb

    # A dotted name would be looked up as a module in a package.
    spec = find_spec(f"duckdb_extension_{name}") if name.isidentifier() else None
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "extensions"
    file = folder / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    return Wheel(file if file.exists() else None, sorted(path.name for path in folder.glob("v*")))


def load_extension(con: "duckdb.DuckDBPyConnection", name: str) -> str:
    """Load one extension and return where it came from; signature checks stay on.

    Raises:
        ExtensionMissingError: When neither a wheel nor DuckDB's own repository has it.
    """
    import duckdb

    from ducklake_orch.engine.quoting import identifier, literal

    wheel = find_wheel(name)
    if wheel and wheel.file:
        try:
            con.execute(f"LOAD {literal(str(wheel.file))}")
        except duckdb.Error as error:  # MotherDuck's asks its service whether the version is right
            raise ExtensionMissingError(
                f"DuckDB extension `{name}` cannot be loaded from {wheel.file}: {_first_line(error)}."
            ) from error
        return "wheel"
    try:
        con.execute(f"LOAD {identifier(name)}")
        return "installed"
    except duckdb.Error:
        pass  # not installed yet: the next statement does that
    try:
        con.execute(f"INSTALL {identifier(name)}")
        con.execute(f"LOAD {identifier(name)}")
        return "repository"
    except duckdb.Error as error:
        raise _missing(name, wheel, duckdb.__version__, _first_line(error)) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".")


def _missing(name: str, wheel: Wheel | None, engine: str, reason: str) -> ExtensionMissingError:
    if wheel:
        return ExtensionMissingError(
            f"The wheel of DuckDB extension `{name}` is for {', '.join(wheel.versions)}, the engine is v{engine}.",
            remedy=f"Install duckdb-extension-{name.replace('_', '-')}=={engine}, or the duckdb that fits the wheel.",
        )
    package = f"duckdb-extension-{name.replace('_', '-')}"
    if name in _EXTRAS:
        extra = _EXTRAS[name]
        package = f"ducklake-orch[{extra}]" if extra else "ducklake-orch"
    return ExtensionMissingError(
        f"DuckDB extension `{name}` is not installed and could not be fetched ({reason}).",
        remedy=f"pip install '{package}'",
    )
