"""The licences of what the package asks for, as installed packages state them: `python -m tests.release.licences`."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, metadata

from tests.release.check import REPOSITORY

PAGE = REPOSITORY / "docs" / "licences.md"
HEAD = """# Licences

ducklake-orch is Apache-2.0. Below is what it asks for directly, by itself or in an extra, and the licence that each
package states about itself. Nothing of them is copied into this package; pip installs them beside it, with what they
need in turn (`pip-licenses` lists that for an environment).

| Package | Asked for by | Licence |
|---|---|---|
"""
TAIL = """
The extension for MotherDuck is MotherDuck's own, and no free software; only the extra `motherduck` brings it.
"""
_NAME = re.compile(r"[A-Za-z0-9._-]+")
# What older metadata says in a classifier or in words of its own.
_SPDX = {
    "Apache Software License": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "MIT License": "MIT",
    "BSD License": "BSD-3-Clause",
}


def requirements() -> dict[str, list[str]]:
    """Return the packages that are asked for, and by which extras; the package itself is none."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    asked: dict[str, list[str]] = {}
    for extra, needs in {"": project["dependencies"], **project["optional-dependencies"]}.items():
        for need in needs:
            found = _NAME.match(need)
            assert found is not None, need
            if found[0] != project["name"]:
                asked.setdefault(found[0].lower(), []).append(extra)
    return asked


def licence(package: str) -> str | None:
    """Return what an installed package states, as an SPDX expression where it can be told; None where it is absent."""
    try:
        said = metadata(package)
    except PackageNotFoundError:
        return None
    if "License-Expression" in said:
        return str(said["License-Expression"])
    classifiers = [one.rpartition(" :: ")[2] for one in said.get_all("Classifier") or [] if one.startswith("License")]
    stated = [*classifiers, (said["License"] if "License" in said else "").strip().partition("\n")[0]]
    for one in stated:
        if one in _SPDX:
            return _SPDX[one]
    return next((one for one in stated if one and one != "OSI Approved"), "not stated")


def page() -> str:
    """Return the page; every package has to be installed for it."""
    rows = []
    for package, extras in sorted(requirements().items()):
        by = ", ".join(f"`{extra}`" if extra else "itself" for extra in extras)
        rows.append(f"| {package} | {by} | {licence(package)} |")
    return HEAD + "\n".join(rows) + "\n" + TAIL


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
