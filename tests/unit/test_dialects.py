"""Only `config/` and `engine/dialects/` depend on the type of the catalog."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import ducklake_orch
from ducklake_orch.config.catalogs import CATALOGS
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.dialects import dialect_of

PACKAGE = Path(ducklake_orch.__file__).parent
# Dagster's copies of the configuration models are configuration as well.
MODELS = (PACKAGE / "config", PACKAGE / "engine" / "dialects", PACKAGE / "dagster" / "configuration.py")
CLASSES = {model.__name__ for model in CATALOGS.types.values()} | {"FileCatalog", "ServerCatalog"}
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


def is_catalog_type(node: ast.AST) -> bool:
    """Return whether a node is `….catalog.type`."""
    if not (isinstance(node, ast.Attribute) and node.attr == "type"):
        return False
    owner = node.value
    return (isinstance(owner, ast.Attribute) and owner.attr == "catalog") or (
        isinstance(owner, ast.Name) and owner.id == "catalog"
    )


def catalog_branches(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that branch on the type of a catalog."""
    for node in ast.walk(tree):
        names = {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass")) | ast.MatchClass() if names & CLASSES:
                yield getattr(node, "lineno", 0)
            case ast.Compare() if any(map(is_catalog_type, [node.left, *node.comparators])):
                yield node.lineno
            case ast.Match(subject=part) | ast.Subscript(slice=part) | ast.Call(args=[part, *_]) if is_catalog_type(
                part
            ):
                yield getattr(node, "lineno", 0)


def test_only_config_and_dialects_branch_on_the_catalog_type() -> None:
    branches = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in PACKAGE.rglob("*.py")
        if not any(path.is_relative_to(model) for model in MODELS)
        for line in catalog_branches(ast.parse(path.read_text()))
    ]
    assert branches == []


@pytest.mark.parametrize("code", REFUSED)
def test_a_branch_on_the_catalog_type_is_detected(code: str) -> None:
    assert list(catalog_branches(ast.parse(code)))


def test_printing_the_catalog_type_is_allowed() -> None:
    assert list(catalog_branches(ast.parse(ALLOWED))) == []


@pytest.mark.parametrize(
    "url", ["duckdb:///c.ducklake", "sqlite:///c.sqlite", "postgresql://h/d", "mysql://h/d", "md:d"]
)
def test_every_catalog_has_a_dialect(url: str) -> None:
    storage = None if url.startswith("md:") else "files"
    config = LakeConfig.model_validate({"name": "lake", "catalog": url, "storage": storage})
    assert dialect_of(config).metadata_attach("other", read_only=False).startswith("ATTACH ")
    assert dialect_of(config).catalog_name()
