"""Which catalog a lake has is known to `config/` and `engine/dialects/` alone."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import ducklake_orch
from ducklake_orch.config.catalogs import CATALOGS
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.dialects import dialect_of

PACKAGE = Path(ducklake_orch.__file__).parent
# Dagster's copies of the configuration models are models themselves.
MODELS = (PACKAGE / "config", PACKAGE / "engine" / "dialects", PACKAGE / "dagster" / "configuration.py")
CLASSES = {one.__name__ for one in CATALOGS.types.values()} | {"FileCatalog", "ServerCatalog"}
ALLOWED = """
def shown(config):
    return {"catalog": config.catalog.type}, f"a {catalog.type} catalog", config.catalog.to_url()
"""
REFUSED = [
    "isinstance(config.catalog, FileCatalog)",
    "isinstance(catalog, PostgresCatalog | MySQLCatalog)",
    "match catalog:\n    case SQLiteCatalog(): pass",
    "config.catalog.type == 'mysql'",
    "'mysql' != self.lake.config.catalog.type",
    "catalog.type in ('postgres', 'mysql')",
    "match config.catalog.type:\n    case 'mysql': pass",
    "KINDS[config.catalog.type]",
    "KINDS.get(config.catalog.type)",
]


def is_kind(node: ast.AST) -> bool:
    """Whether a node is `….catalog.type`."""
    if not (isinstance(node, ast.Attribute) and node.attr == "type"):
        return False
    owner = node.value
    return (isinstance(owner, ast.Attribute) and owner.attr == "catalog") or (
        isinstance(owner, ast.Name) and owner.id == "catalog"
    )


def branches(tree: ast.AST) -> Iterator[int]:
    """Find the lines that decide by the kind of a catalog."""
    for node in ast.walk(tree):
        names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass")) | ast.MatchClass() if names & CLASSES:
                yield getattr(node, "lineno", 0)
            case ast.Compare() if any(map(is_kind, [node.left, *node.comparators])):
                yield node.lineno
            case ast.Match(subject=one) | ast.Subscript(slice=one) | ast.Call(args=[one, *_]) if is_kind(one):
                yield getattr(node, "lineno", 0)


def test_no_other_module_decides_by_the_kind_of_catalog() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in PACKAGE.rglob("*.py")
        if not any(path.is_relative_to(model) for model in MODELS)
        for line in branches(ast.parse(path.read_text()))
    ]
    assert found == []


@pytest.mark.parametrize("code", REFUSED)
def test_a_decision_by_the_kind_of_catalog_is_found(code: str) -> None:
    assert list(branches(ast.parse(code)))


def test_the_kind_of_a_catalog_may_be_shown() -> None:
    assert list(branches(ast.parse(ALLOWED))) == []


@pytest.mark.parametrize(
    "url", ["duckdb:///c.ducklake", "sqlite:///c.sqlite", "postgresql://h/d", "mysql://h/d", "md:d"]
)
def test_every_catalog_has_a_dialect(url: str) -> None:
    storage = None if url.startswith("md:") else "files"
    config = LakeConfig.model_validate({"name": "lake", "catalog": url, "storage": storage})
    assert dialect_of(config).metadata_attach("other", read_only=False).startswith("ATTACH ")
    assert dialect_of(config).catalog_name()
