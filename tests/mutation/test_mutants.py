import ast
import sys
import tomllib
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest

from tests.mutation.mutants import Mutant, find_mutants
from tests.mutation.run import EXPLAINED, MODULES, ROOT, install
from tests.mutation.sql_mutants import mutate_sql


def mutants_of(code: str) -> dict[str, tuple[ast.Module, Mutant]]:
    """Return the mutants of some code by their texts, each with a tree of its own."""
    count = len(find_mutants(ast.parse(code)))
    trees = [ast.parse(code) for _ in range(count)]
    found = [(tree, find_mutants(tree)[index]) for index, tree in enumerate(trees)]
    return {mutant.name: (tree, mutant) for tree, mutant in found}


def mutated(code: str) -> set[str]:
    results = set()
    for tree, mutant in mutants_of(code).values():
        mutant.apply()
        results.add(ast.unparse(tree))
    return results


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("a < 1 and b", ["b", "a < 1", "a <= 1 and b", "a < 2 and b", "a < 0 and b"]),
        ("f(x, key=1)", ["pass", "f(x)", "f(x, key=2)", "f(x, key=0)"]),
        ("a = [x for x in y if x]", ["a = [x for x in y]"]),
        ("names = ('a', 'b')", ["names = ('b',)", "names = ('a',)"]),
        ("a = not b", ["a = b"]),
        ("return False", ["return True"]),
        ("raise Error(f'a {1 + 2}')", ["pass"]),
        ("import a", []),
        ("a: int | str = b", []),
        ("zip(a, b, strict=True)", ["pass"]),
        ("a = f'SELECT 1 FROM t WHERE x = {y}'", ["a = f'SELECT 1 FROM t WHERE true'"]),
        ("a = f'Leave {x} and {y}'", []),
    ],
)
def test_each_mutant_differs_in_one_point(code: str, expected: list[str]) -> None:
    assert mutated(code) == set(expected)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("a = 1 AND b = 2", ["true AND b = 2", "a = 1 AND true", "a = 1 OR b = 2"]),
        ("a > 1 OR b IN (1)", ["false OR b IN (1)", "a > 1 OR false", "a > 1 AND b IN (1)", "a >= 1 OR b IN (1)"]),
        ("WHERE a IS NULL", ["WHERE true", "WHERE a IS NOT NULL"]),
        ("SELECT min(a) FROM t", ["SELECT max(a) FROM t"]),
        ("SELECT a FROM t ORDER BY a", ["SELECT a FROM t"]),
        ("SELECT a FROM t LEFT JOIN u USING (b)", ["SELECT a FROM t JOIN u USING (b)"]),
        ("an error and its remedy", []),
    ],
)  # fmt: skip
def test_sql_is_mutated_condition_by_condition(sql: str, expected: list[str]) -> None:
    assert set(mutate_sql(sql)) == set(expected)


def test_mutants_have_names_of_their_own_that_do_not_depend_on_lines() -> None:
    code = "def f(a):\n    return a == 1 or a == 1\n"
    names = list(mutants_of(code))
    assert len(names) == len(set(names)) == len(find_mutants(ast.parse(code)))
    assert list(mutants_of(f"\n\n{code}")) == names


def test_a_mutant_replaces_functions_methods_and_constants_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    code = dedent("""
        LIMIT = 5
        def is_small(n): return n < LIMIT
        class Box:
            @property
            def size(self): return 1
    """)
    module = ModuleType("ducklake_orch_mutated")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(code, module.__dict__)
    is_small, box = module.is_small, module.Box()
    install(module, compile(code.replace("5", "7").replace("<", "<=").replace("return 1", "return 2"), "", "exec"))
    assert (is_small(7), is_small(8), box.size) == (True, False, 2)


@pytest.mark.parametrize("name", MODULES)
def test_each_explained_mutant_exists(name: str) -> None:
    path = Path(ROOT, f"{MODULES[name].replace('.', '/')}.py")
    names = {mutant.name for mutant in find_mutants(ast.parse(path.read_text()))}
    assert names
    assert tomllib.loads(EXPLAINED.read_text()).get(name, {}).keys() <= names
