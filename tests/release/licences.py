"""The licences of all requirements, from installed packages. Run `python -m tests.release.licences` to list them."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, metadata

from tests.release.check import REPOSITORY

PAGE = REPOSITORY / "docs" / "licences.md"
HEAD = """# Licences

ducklake-orch is licensed under Apache-2.0. The table lists its direct requirements, including those of extras, with the
licence in the metadata of each package. ducklake-orch contains no code of these packages. pip installs them and their
requirements separately (`pip-licenses` lists all packages in an environment).

| Package | Required by | Licence |
|---|---|---|
"""
TAIL = """
The extension for MotherDuck is proprietary software of MotherDuck. Only the extra `motherduck` installs it.
"""
_NAME = re.compile(r"[A-Za-z0-9._-]+")
# Licences in classifiers or free text of older metadata.
_SPDX = {
    "Apache Software License": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "MIT License": "MIT",
    "BSD License": "BSD-3-Clause",
}


def requirements() -> dict[str, list[str]]:
    """Return the required packages with the extras that require them, without ducklake-orch itself."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    extras_of: dict[str, list[str]] = {}
    for extra, needs in {"": project["dependencies"], **project["optional-dependencies"]}.items():
        for need in needs:
            match = _NAME.match(need)
            assert match is not None, need
            if match[0] != project["name"]:
                extras_of.setdefault(match[0].lower(), []).append(extra)
    return extras_of


def licence(package: str) -> str | None:
    """Return the licence of a package, as an SPDX expression if it is known; None if it is not installed."""
    try:
        package_metadata = metadata(package)
    except PackageNotFoundError:
        return None
    if "License-Expression" in package_metadata:
        return str(package_metadata["License-Expression"])
    classifiers = [
        licence_text.rpartition(" :: ")[2]
        for licence_text in package_metadata.get_all("Classifier") or []
        if licence_text.startswith("License")
    ]
    stated = [
        *classifiers,
        (package_metadata["License"] if "License" in package_metadata else "").strip().partition("\n")[0],
    ]
    for licence_text in stated:
        if licence_text in _SPDX:
            return _SPDX[licence_text]
    return next(
        (licence_text for licence_text in stated if licence_text and licence_text != "OSI Approved"), "not stated"
    )


def page() -> str:
    """Return the page, which requires that every package is installed."""
    rows = []
    for package, extras in sorted(requirements().items()):
        by = ", ".join(f"`{extra}`" if extra else "itself" for extra in extras)
        rows.append(f"| {package} | {by} | {licence(package)} |")
    return HEAD + "\n".join(rows) + "\n" + TAIL


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
