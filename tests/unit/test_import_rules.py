"""Who may import whom in the whole package: a table of allowed imports, read against the source of every module."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "ducklake_orch"

# The packages that have a face: whoever is outside one of them imports from its `__init__.py` only.
FACES = [
    "catalog.metadata",
    "catalog.parquet",
    "catalog.scan",
    "catalog.writing",
    "catalog.commit",
    "catalog.search",
    "catalog.verbs",
    "catalog.feed",
    "catalog.lifecycle",
    "catalog.ingest",
    "catalog.fsck",
]

# The modules beside the packages are the facade of the lake, but for those that stand below everything.
FACADE = ["__init__", "lake", "table", "frames"]

BASE = ["errors", "results", "config", "engine"]
_LOW = [*BASE, "catalog.faces", "catalog.metadata", "catalog.parquet"]
_COMMIT = [*_LOW, "catalog.scan", "catalog.writing"]
_SEARCH = [*_COMMIT, "catalog.commit"]
_VERBS = [*_SEARCH, "catalog.search"]

# What a part may import when it runs, at the top of a module or inside a function. Imports point down.
ALLOWED: dict[str, list[str]] = {
    "errors": [],
    "results": ["errors"],
    "config": ["errors"],
    "engine": ["errors", "results", "config"],
    "catalog": [],
    "catalog.faces": [],
    "catalog.metadata": [*BASE, "catalog.faces"],
    "catalog.parquet": [*BASE, "catalog.faces", "catalog.metadata"],
    "catalog.scan": _LOW,
    "catalog.writing": _LOW,
    "catalog.commit": _COMMIT,
    "catalog.search": _SEARCH,
    "catalog.verbs": _VERBS,
    "catalog.feed": _VERBS,
    "catalog.lifecycle": _VERBS,
    "catalog.ingest": _VERBS,
    "catalog.fsck": [*_LOW, "catalog.commit"],
    "spark": [*BASE, *FACES],
    "maintenance": [*BASE, *FACES, "spark"],
    "report": [*BASE, *FACES, "maintenance"],
    "facade": [*BASE, *FACES, "spark", "maintenance", "report"],
    "host_partitions": [*BASE, *FACES, "facade"],
    "dagster": [*BASE, *FACES, "spark", "maintenance", "report", "facade", "host_partitions"],
    "airflow": [*BASE, *FACES, "spark", "maintenance", "report", "facade", "host_partitions"],
    "cli": [*BASE, *FACES, "spark", "maintenance", "report", "facade", "host_partitions"],
}

# What may be named for type checkers only (`if TYPE_CHECKING:`), beside what is allowed anyway.
FOR_TYPES: dict[str, list[str]] = {
    "catalog.scan": ["facade"],
    "catalog.feed": ["facade"],
    "spark": ["facade"],
}

# Imports that break a rule, each with its reason. One that is no longer there fails, too.
KNOWN: dict[tuple[str, str], str] = {
    ("spark/submit.py", "cli"): "the script that spark-submit runs: it is the command line `ducklake-orch write`",
}


@dataclass(frozen=True)
class Import:
    """An import of something in the package.

    Attributes:
        path: The file that has it, below the package.
        line: Its line.
        module: The module that is imported, as far as it is named; a face if it is imported from one.
        name: The name that is imported from it.
        only_types: Whether it is for type checkers only.
        at_load: Whether it runs when the module is loaded.
    """

    path: Path
    line: int
    module: str
    name: str
    only_types: bool
    at_load: bool

    def __str__(self) -> str:
        return f"ducklake_orch/{self.path}:{self.line}: {part(self.path)} imports {self.module} ({self.name})"


def part(path: Path) -> str:
    """Return the part of the package that a file belongs to."""
    folders = path.parts[:-1]
    if not folders:
        return "facade" if path.stem in FACADE else path.stem
    if folders[0] != "catalog":
        return folders[0]
    if len(folders) == 1:
        return "catalog" if path.stem == "__init__" else f"catalog.{path.stem}"
    return f"catalog.{folders[1]}"


@cache
def file_of(module: str) -> Path | None:
    """Return the file of a module `ducklake_orch.…`, below the package."""
    inside = Path(*module.split(".")[1:])
    for path in (inside.with_suffix(".py") if inside.name else None, inside / "__init__.py"):
        if path is not None and (PACKAGE / path).is_file():
            return path
    return None


@cache
def files() -> list[Path]:
    return sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


@cache
def imports() -> list[Import]:
    found = (one for path in files() for one in _imports(path))
    return [one for one in found if one.module.split(".")[0] == "ducklake_orch"]


def _imports(path: Path) -> Iterator[Import]:
    def walk(node: ast.AST, only_types: bool, at_load: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ImportFrom):
                for alias in child.names:
                    # What is imported may be a module itself.
                    inner = f"{child.module}.{alias.name}"
                    module = inner if file_of(inner) else child.module or ""
                    yield Import(path, child.lineno, module, alias.name, only_types, at_load)
            elif isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(path, child.lineno, alias.name, alias.name, only_types, at_load)
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                yield from walk(ast.Module(child.body, []), True, at_load)
                yield from walk(ast.Module(child.orelse, []), only_types, at_load)
            elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
                function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
                yield from walk(child, only_types, at_load and not function)

    yield from walk(ast.parse((PACKAGE / path).read_text()), False, True)


def target(found: Import) -> Path:
    """Return the file that an import loads: behind a face, the module that defines the name."""
    path = file_of(found.module)
    assert path is not None, f"{found}: there is no such module"
    if path.name == "__init__.py" and (defined := exports(path.parent).get(found.name)):
        return path.parent / f"{defined}.py"
    return path


@cache
def exports(folder: Path) -> dict[str, str]:
    """Return what a face exports, with the modules that define it, as type checkers read it."""
    if ".".join(folder.parts) not in FACES:
        return {}
    start = f"ducklake_orch.{'.'.join(folder.parts)}."
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse((PACKAGE / folder / "__init__.py").read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(start):
            assert node.module is not None
            found |= {alias.name: node.module.removeprefix(start) for alias in node.names}
    return found


def test_every_part_has_a_rule() -> None:
    assert {part(path) for path in files()} == set(ALLOWED)


def test_the_rules_themselves_point_down() -> None:
    TopologicalSorter(ALLOWED).prepare()


def test_imports_are_allowed() -> None:
    broken = []
    used = set()
    for found in imports():
        mine, other = part(found.path), part(target(found))
        allowed = {mine, *ALLOWED[mine], *(FOR_TYPES.get(mine, []) if found.only_types else [])}
        if other in allowed:
            continue
        known = (found.path.as_posix(), other)
        if known in KNOWN:
            used.add(known)
            continue
        broken.append(f"{found}: `{mine}` may import {', '.join(ALLOWED[mine]) or 'nothing'}")
    assert not broken, "\n".join(broken)
    assert used == set(KNOWN), "no longer needed in KNOWN"


def test_outside_a_package_only_its_face_is_imported() -> None:
    broken = [
        f"{found}: import from the face `ducklake_orch.{there}`"
        for found in imports()
        for there in FACES
        if part(found.path) != there and found.module.startswith(f"ducklake_orch.{there}.")
    ]
    assert not broken, "\n".join(broken)


def _cycle(chosen: list[Import]) -> str:
    graph = defaultdict(set)
    for found in chosen:
        if (path := target(found)) != found.path:
            graph[found.path.as_posix()].add(path.as_posix())
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return " -> ".join(error.args[1])
    return ""


def test_no_module_is_loaded_by_what_it_loads() -> None:
    cycle = _cycle([found for found in imports() if found.at_load and not found.only_types])
    assert not cycle, cycle


def test_no_cycle_in_the_catalog_even_inside_functions() -> None:
    cycle = _cycle([found for found in imports() if found.path.parts[0] == "catalog" and not found.only_types])
    assert not cycle, cycle


def test_no_basename_more_than_twice() -> None:
    counted = Counter(path.stem for path in files() if path.stem not in ("__init__", "__main__"))
    many = {name for name, count in counted.items() if count > 2}
    places = {name: [path.as_posix() for path in files() if path.stem == name] for name in sorted(many)}
    assert not many, places


@pytest.mark.parametrize("name", FACES)
def test_a_face_exports_what_it_says(name: str) -> None:
    folder = Path(*name.split("."))
    face = import_module(f"ducklake_orch.{name}")
    typed = exports(folder)
    assert sorted(typed) == face.__all__, "the imports for type checkers and the table are not the same"
    modules = {path.stem for path in files() if path.parent == folder}
    assert not modules & set(typed), "an export is called like a module of its package"
    for exported, module in typed.items():
        assert getattr(face, exported) is getattr(import_module(f"ducklake_orch.{name}.{module}"), exported)
    wanted = {found.name for found in imports() if found.module == f"ducklake_orch.{name}"}
    assert set(typed) <= wanted, "exported for nobody"
    assert wanted <= set(typed), "not exported"


def test_a_face_knows_no_other_names() -> None:
    face = import_module("ducklake_orch.catalog.scan")
    with pytest.raises(AttributeError, match="nonsense"):
        face.nonsense  # noqa: B018
