"""Shell commands that install packages, as they work where this process runs.

No package index has ducklake-orch. In a checkout, pip installs an extra from the folder; elsewhere, where a wheel is
installed, the commands name the packages that the extra asks for.
"""

import os
import re
import shlex
import shutil
import sys
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from pathlib import Path

_NAME = "ducklake-orch"
_REQUIREMENT = re.compile(r"([\w.-]+(?:\[[^\]]*\])?)\s*([^;]*?)\s*(?:;(.*))?")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")


def install_extra(extra: str, *fallback: str) -> str:
    """Return the command that installs the packages of an extra of ducklake-orch.

    Args:
        extra: Its name, such as `spark`.
        fallback: The packages to name where those of the extra are unknown: a Spark worker that runs code which the
            driver sent has no metadata of ducklake-orch.

    Example:
        >>> print(install_extra("spark"))  # doctest: +SKIP
        pip install -e '.[spark]'
    """
    folder = _checkout()
    if folder is not None:
        return f"{pip()} install -e {shlex.quote(f'{_shown(folder)}[{extra}]')}"
    packages = _packages(extra) or list(fallback)
    return _install(packages) if packages else f"install ducklake-orch with its extra `{extra}`"


def install_packages(*names: str, reinstall: bool = False) -> str:
    """Return the command that installs packages, in the versions that ducklake-orch asks for.

    Args:
        names: The packages. One with `==` is installed in that version.
        reinstall: Whether to replace what is installed.
    """
    ranges = {name: version for name, version, _ in _requirements()}
    return _install([name + ranges.get(name, "") for name in names], "--force-reinstall" if reinstall else "")


def pip() -> str:
    """Return the command that runs pip for this Python: `pip`, where that is the one on the path."""
    found = shutil.which("pip")
    if not sys.executable or (found and Path(found).parent == Path(sys.executable).parent):
        return "pip"
    python = shlex.quote(_below_cwd(Path(sys.executable)))
    if find_spec("pip") is None and shutil.which("uv"):
        return f"VIRTUAL_ENV={shlex.quote(_below_cwd(Path(sys.prefix)))} uv pip"
    return f"{python} -m pip"


def _install(packages: list[str], *options: str) -> str:
    return " ".join([pip(), "install", *filter(None, options), *map(shlex.quote, packages)])


def _checkout() -> Path | None:
    """Return the folder of the sources that this process runs; None if it runs an installed wheel."""
    own_file = globals().get("__file__")  # modules that were sent to a Spark worker have no file
    if own_file is None:
        return None
    folder = Path(own_file).resolve().parents[1]
    try:
        project = (folder / "pyproject.toml").read_text("utf-8")
    except OSError:
        return None
    return folder if f'name = "{_NAME}"' in project else None


def _shown(folder: Path) -> str:
    """Return a folder for pip, which takes a bare name for a package."""
    shown = _below_cwd(folder)
    return shown if os.sep in shown or shown == "." else f".{os.sep}{shown}"


def _below_cwd(path: Path) -> str:
    """Return a path relative to the working directory if it is below it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (OSError, ValueError):
        return str(path)


def _packages(extra: str) -> list[str]:
    """Return the requirements of an extra, with those of other extras of ducklake-orch that it names."""
    packages: list[str] = []
    for name, version, asked_by in _requirements():
        if asked_by != extra:
            continue
        own, _, inner = name.rstrip("]").partition("[")
        packages += _packages(inner) if own == _NAME and inner else [name + version]
    return list(dict.fromkeys(packages))


def _requirements() -> list[tuple[str, str, str | None]]:
    """Return the requirements of the installed package: name, range of versions, and the extra that asks for it."""
    try:
        lines = requires(_NAME) or []
    except PackageNotFoundError:
        return []
    found = []
    for line in lines:
        if match := _REQUIREMENT.fullmatch(line):
            extra = _EXTRA.search(match[3] or "")
            found.append((match[1], match[2], extra[1] if extra else None))
    return found
