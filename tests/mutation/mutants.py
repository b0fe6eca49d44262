"""Find the mutants of a module: changes of one small point of its syntax tree.

Error messages, annotations and docstrings stay as they are.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile

from tests.mutation.replacements import is_assertion, replacements

# How much of the code before and after a change its description shows.
_SHOWN = 70


@dataclass(frozen=True)
class Mutant:
    """One change of a module.

    Attributes:
        function: The function or class that it changes; "" for the module itself.
        lines: The lines of the statement that it changes.
        text: The change in words.
        apply: Makes the change in the syntax tree, for good.
        is_definition: Whether it changes what runs once, when the module is imported.
    """

    function: str
    lines: range
    text: str
    apply: Callable[[], None]
    is_definition: bool = False

    @property
    def name(self) -> str:
        """The mutant's name, which stays the same when lines are added above it."""
        return f"{self.function}: {self.text}" if self.function else self.text


def find_mutants(tree: ast.Module) -> list[Mutant]:
    """Return all mutants of a module, each with a name of its own."""
    seen = Counter[str]()
    named = []
    for mutant in _within(tree, ""):
        seen[mutant.name] += 1
        count = seen[mutant.name]
        named.append(mutant if count == 1 else replace(mutant, text=f"{mutant.text} ({count})"))
    return named


def _within(owner: ast.AST, function: str) -> Iterator[Mutant]:
    """Return the mutants of the statements in a module or in a statement."""
    is_definition = isinstance(owner, ast.Module | ast.ClassDef)
    if isinstance(owner, ast.ClassDef | ast.FunctionDef):
        function = f"{function}.{owner.name}" if function else owner.name
    for _, value in ast.iter_fields(owner):
        for index, statement in enumerate(value if isinstance(value, list) else []):
            if isinstance(statement, ast.match_case):
                yield from _within(statement, function)
            elif isinstance(statement, ast.stmt) and not _is_fixed(statement):
                for mutant in _of_slot(statement, partial(value.__setitem__, index), function, _lines(statement)):
                    yield replace(mutant, is_definition=is_definition)
                yield from _within(statement, function)


def _is_fixed(statement: ast.stmt) -> bool:
    docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return docstring or isinstance(statement, ast.Import | ast.ImportFrom | ast.Assert | ast.Pass)


def _lines(statement: ast.stmt) -> range:
    """Return the lines of a statement, without those of the statements that it holds."""
    inner = [child.lineno for child in ast.walk(statement) if isinstance(child, ast.stmt) and child is not statement]
    end = min(inner) if inner else (statement.end_lineno or statement.lineno) + 1
    return range(statement.lineno, max(end, statement.lineno + 1))


def _of_slot(node: ast.AST, put: Callable[[ast.AST], None], function: str, lines: range) -> Iterator[Mutant]:
    """Return the mutants of a node, which `put` replaces, and of the expressions in it."""
    for new in replacements(node):
        located = ast.fix_missing_locations(ast.copy_location(new, node))
        changed = lines
        if isinstance(node, ast.Match) and (left_out := _left_out(node, new)) is not None:
            changed = _lines(left_out.body[0])
        yield Mutant(function, changed, _words(node, new), partial(put, located))
    if isinstance(node, ast.Raise | ast.FunctionDef):
        return
    for name, value in ast.iter_fields(node):
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(child, ast.expr | ast.comprehension | ast.keyword) and not _stays(node, name, child):
                in_list = isinstance(value, list)
                put_child = partial(value.__setitem__, index) if in_list else partial(setattr, node, name)
                yield from _of_slot(child, put_child, function, lines)


def _stays(node: ast.AST, field: str, child: ast.AST) -> bool:
    """Whether a part of a node has no mutants of its own."""
    return (
        field in ("annotation", "decorator_list", "format_spec")
        or (field == "func" and isinstance(child, ast.Name))
        or (field == "slice" and isinstance(child, ast.Constant))  # the position of a column in a row
        or (field == "slice" and isinstance(child, ast.Tuple))  # the parameters of a type
        or (isinstance(node, ast.JoinedStr) and isinstance(child, ast.Constant))  # mutated as one text
        or (isinstance(child, ast.keyword) and is_assertion(child))
    )


def _words(node: ast.AST, new: ast.AST) -> str:
    """Describe a change by the code before and after it, or by the parts of these that differ."""
    before = _code(node)
    if isinstance(new, ast.Pass):
        return f"without `{_cut(before)}`"
    if isinstance(node, ast.Match) and isinstance(new, ast.Match):
        left_out = {ast.unparse(case.pattern) for case in node.cases} - {
            ast.unparse(case.pattern) for case in new.cases
        }
        return f"without `case {min(left_out)}`"
    after = _code(new)
    if max(len(before), len(after)) > _SHOWN:
        start = max(_common(before, after) - 20, 0)
        end = max(_common(before[start:][::-1], after[start:][::-1]) - 12, 0)
        before, after = (f"…{code[start : len(code) - end]}…" for code in (before, after))
    return f"`{_cut(before)}` → `{_cut(after)}`"


def _left_out(node: ast.Match, new: ast.AST) -> ast.match_case | None:
    """Return the case that a mutant of a `match` leaves out."""
    cases = new.cases if isinstance(new, ast.Match) else node.cases
    return next((case for case in node.cases if case not in cases), None)


def _code(node: ast.AST) -> str:
    """Return the code of a node on one line; of an `if`, only its condition."""
    code = f"if {ast.unparse(node.test)}" if isinstance(node, ast.If) else ast.unparse(node)
    return " ".join(code.split())


def _common(text: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text, other, strict=False)))


def _cut(text: str) -> str:
    return text if len(text) <= 2 * _SHOWN else f"{text[: 2 * _SHOWN]}…"
