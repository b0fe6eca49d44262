"""The metadata of a release: one version, listed licences, and workflows that run make targets."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import ducklake_orch
from tests.release import licences
from tests.release.check import EXTRAS, REPOSITORY
from tests.release.check import version as source_version

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (REPOSITORY / "Makefile").read_text("utf-8"), re.MULTILINE))


def test_the_version_is_defined_in_one_place() -> None:
    assert "version" in PROJECT["dynamic"]
    assert "version" not in PROJECT
    assert ducklake_orch.__version__ == source_version()
    assert version("ducklake-orch") == source_version()


def test_the_changelog_and_the_security_policy_name_the_version() -> None:
    changelog = (REPOSITORY / "CHANGELOG.md").read_text("utf-8")
    headings = re.findall(r"^## \[(.+?)\]", changelog, re.MULTILINE)
    assert source_version() in headings[:2]  # above it, there may be what is not released yet
    assert source_version() in (REPOSITORY / "SECURITY.md").read_text("utf-8")


def test_every_python_of_the_classifiers_is_checked() -> None:
    named = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((REPOSITORY / ".github" / "workflows" / "ci.yml").read_text("utf-8"))
    assert workflow["jobs"]["release-check"]["strategy"]["matrix"]["python"] == named


def test_all_installs_every_extra_but_the_proprietary_one() -> None:
    extras = PROJECT["optional-dependencies"]
    (everything,) = extras["all"]
    named = set(everything.partition("[")[2].rstrip("]").split(","))
    assert named == set(extras) - {"all", "motherduck", "spark"}  # `connect` brings `spark`


def test_every_tested_extra_exists() -> None:
    assert {extra for extra in EXTRAS if extra} <= set(PROJECT["optional-dependencies"])


def test_the_licences_of_all_requirements_are_listed() -> None:
    listed = dict(re.findall(r"^\| ([\w.-]+) \| .* \| (.+) \|$", licences.PAGE.read_text("utf-8"), re.MULTILINE))
    assert {name for name in listed if name != "Package"} == set(licences.requirements())
    installed = {name: text for name in listed if (text := licences.licence(name)) is not None}
    assert installed.items() <= listed.items(), "run: python -m tests.release.licences"
    assert "not stated" not in listed.values()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_make_targets_and_pin_their_actions(path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load(path.read_text("utf-8"))
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    used = [step["uses"] for step in steps if "uses" in step]
    assert used
    assert [action for action in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action)] == []
    called = {target for step in steps for target in re.findall(r"\bmake ([a-z0-9-]+)", step.get("run", ""))}
    assert called
    assert called <= TARGETS
    assert workflow["permissions"] == {"contents": "read"}
