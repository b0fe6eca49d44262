"""A table of allowed imports between the parts of the package, checked against the source of every module."""

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

# Packages with a public module: code outside the package imports only from its `__init__.py`.
PUBLIC_PACKAGES = [
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
    "catalog.transactions",
]

# Top-level modules belong to the facade, except those that every part may import.
FACADE = ["__init__", "lake", "table", "frames"]

BASE = ["errors", "install_commands", "results", "config", "engine"]
_LOW = [*BASE, "catalog.faces", "catalog.metadata", "catalog.parquet"]
_COMMIT = [*_LOW, "catalog.scan", "catalog.writing"]
_SEARCH = [*_COMMIT, "catalog.commit"]
_VERBS = [*_SEARCH, "catalog.search"]

# Allowed runtime imports of each part, at the top of a module or inside a function. Imports point down.
ALLOWED: dict[str, list[str]] = {
    "errors": [],
    "install_commands": [],
    "results": ["errors"],
    "config": ["errors"],
    "engine": ["errors", "install_commands", "results", "config"],
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
    "catalog.transactions": _VERBS,
    "spark": [*BASE, *PUBLIC_PACKAGES],
    "maintenance": [*BASE, *PUBLIC_PACKAGES, "spark"],
    "report": [*BASE, *PUBLIC_PACKAGES, "maintenance"],
    "facade": [*BASE, *PUBLIC_PACKAGES, "spark", "maintenance", "report"],
    "host_partitions": [*BASE, *PUBLIC_PACKAGES, "facade"],
    "dagster": [*BASE, *PUBLIC_PACKAGES, "spark", "maintenance", "report", "facade", "host_partitions"],
    "airflow": [*BASE, *PUBLIC_PACKAGES, "spark", "maintenance", "report", "facade", "host_partitions"],
    "cli": [*BASE, *PUBLIC_PACKAGES, "spark", "maintenance", "report", "facade", "host_partitions"],
}

# Additional imports that are allowed for type checkers only (`if TYPE_CHECKING:`).
ALLOWED_FOR_TYPES: dict[str, list[str]] = {
    "catalog.scan": ["facade"],
    "catalog.feed": ["facade"],
    "spark": ["facade"],
}

# Exceptions to the rules, each with its reason. An entry without an import fails the test.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("spark/submit.py", "cli"): "the script that spark-submit runs: it is the command line `ducklake-orch write`",
}


@dataclass(frozen=True)
class Import:
    """An import of a module or name of the package.

    Attributes:
        path: The importing file, relative to the package.
        line: The line of the import.
        module: The module in the import statement, which may be a public module.
        name: The imported name.
        only_types: Whether the import is for type checkers only.
        at_load: Whether the import runs when the module is loaded.
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
    """Return the part of the package that contains a file."""
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
    """Return the file of a module `ducklake_orch.…`, relative to the package."""
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
    every = (imported for path in files() for imported in _imports(path))
    return [imported for imported in every if imported.module.split(".")[0] == "ducklake_orch"]


def _imports(path: Path) -> Iterator[Import]:
    def walk(node: ast.AST, only_types: bool, at_load: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ImportFrom):
                for alias in child.names:
                    # The imported name may be a module.
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


def target(imported: Import) -> Path:
    """Return the file that an import loads: for a public module, the module that defines the name."""
    path = file_of(imported.module)
    assert path is not None, f"{imported}: there is no such module"
    if path.name == "__init__.py" and (defined := exports(path.parent).get(imported.name)):
        return path.parent / f"{defined}.py"
    return path


@cache
def exports(folder: Path) -> dict[str, str]:
    """Return the exports of a public module with their defining modules, as type checkers read them."""
    if ".".join(folder.parts) not in PUBLIC_PACKAGES:
        return {}
    start = f"ducklake_orch.{'.'.join(folder.parts)}."
    names: dict[str, str] = {}
    for node in ast.walk(ast.parse((PACKAGE / folder / "__init__.py").read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(start):
            assert node.module is not None
            names |= {alias.name: node.module.removeprefix(start) for alias in node.names}
    return names


def test_every_part_has_a_rule() -> None:
    assert {part(path) for path in files()} == set(ALLOWED)


def test_allowed_imports_point_down() -> None:
    TopologicalSorter(ALLOWED).prepare()


def test_every_import_is_allowed() -> None:
    broken = []
    used = set()
    for imported in imports():
        importer, target_part = part(imported.path), part(target(imported))
        allowed = {importer, *ALLOWED[importer], *(ALLOWED_FOR_TYPES.get(importer, []) if imported.only_types else [])}
        if target_part in allowed:
            continue
        exception = (imported.path.as_posix(), target_part)
        if exception in EXCEPTIONS:
            used.add(exception)
            continue
        broken.append(f"{imported}: `{importer}` may import {', '.join(ALLOWED[importer]) or 'nothing'}")
    assert not broken, "\n".join(broken)
    assert used == set(EXCEPTIONS), "an entry of EXCEPTIONS has no import"


def test_outside_code_imports_only_the_public_module_of_a_package() -> None:
    broken = [
        f"{imported}: import from the public module `ducklake_orch.{package}`"
        for imported in imports()
        for package in PUBLIC_PACKAGES
        if part(imported.path) != package and imported.module.startswith(f"ducklake_orch.{package}.")
    ]
    assert not broken, "\n".join(broken)


def _cycle(chosen: list[Import]) -> str:
    graph = defaultdict(set)
    for imported in chosen:
        if (path := target(imported)) != imported.path:
            graph[imported.path.as_posix()].add(path.as_posix())
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return " -> ".join(error.args[1])
    return ""


def test_there_is_no_import_cycle_at_load_time() -> None:
    cycle = _cycle([imported for imported in imports() if imported.at_load and not imported.only_types])
    assert not cycle, cycle


def test_the_catalog_has_no_import_cycle_even_inside_functions() -> None:
    cycle = _cycle(
        [imported for imported in imports() if imported.path.parts[0] == "catalog" and not imported.only_types]
    )
    assert not cycle, cycle


def test_no_module_name_occurs_more_than_twice() -> None:
    counted = Counter(path.stem for path in files() if path.stem not in ("__init__", "__main__"))
    repeated = {name for name, count in counted.items() if count > 2}
    places = {name: [path.as_posix() for path in files() if path.stem == name] for name in sorted(repeated)}
    assert not repeated, places


@pytest.mark.parametrize("name", PUBLIC_PACKAGES)
def test_a_public_module_exports_exactly_its_declared_names(name: str) -> None:
    folder = Path(*name.split("."))
    package = import_module(f"ducklake_orch.{name}")
    typed = exports(folder)
    assert sorted(typed) == package.__all__, "the imports for type checkers differ from `__all__`"
    modules = {path.stem for path in files() if path.parent == folder}
    assert not modules & set(typed), "an export has the name of a module of its package"
    for exported, module in typed.items():
        assert getattr(package, exported) is getattr(import_module(f"ducklake_orch.{name}.{module}"), exported)
    wanted = {imported.name for imported in imports() if imported.module == f"ducklake_orch.{name}"}
    assert set(typed) <= wanted, "an export is never imported"
    assert wanted <= set(typed), "an imported name is not exported"


def test_a_public_module_rejects_undeclared_names() -> None:
    package = import_module("ducklake_orch.catalog.scan")
    with pytest.raises(AttributeError, match="nonsense"):
        package.nonsense  # noqa: B018
