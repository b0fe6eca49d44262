"""What can stand for a node of a syntax tree in a mutant."""

import ast
from collections.abc import Iterator, Sequence
from typing import TypeVar

from tests.mutation.sql_mutants import mutate_sql

T = TypeVar("T")
_FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OTHER_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
# The first of the characters that stand for the placeholders of an f-string while its text is mutated.
_FIRST_HOLE = 0xE000


def replacements(node: ast.AST) -> Iterator[ast.AST]:
    """Return the nodes that can stand for a node, each with one small difference."""
    for kind in (_of_statement, _of_condition, _of_value, _of_elements, _of_call):
        yield from kind(node)


def _of_statement(node: ast.AST) -> Iterator[ast.AST]:
    """Leave out a statement, or a case of a `match`; negate the condition of an `if`."""
    match node:
        case ast.Expr(ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Continue():
            yield ast.Pass()
        case ast.Return(None | ast.Constant(None | False)):
            pass
        case ast.Return():
            yield ast.Return(ast.Constant(None))
        case ast.If(test, body, orelse) if _is_plain(test):
            yield ast.If(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.Match(subject, [_, _, *_] as cases):
            yield from (ast.Match(subject, without(cases, index)) for index in range(len(cases)))


def _of_condition(node: ast.AST) -> Iterator[ast.AST]:
    """Flip a comparison; leave out a part of a condition, a `not`, or a filter."""
    match node:
        case ast.Compare(left, [op, *ops], others):
            yield ast.Compare(left, [_FLIPPED[type(op)](), *ops], others)
        case ast.BoolOp(op, values):
            for index in range(len(values)):
                rest = without(values, index)
                yield rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.IfExp(test, body, orelse) if _is_plain(test):
            yield ast.IfExp(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.comprehension(target, iterable, [_, *_] as conditions):
            for index in range(len(conditions)):
                yield ast.comprehension(target, iterable, without(conditions, index), node.is_async)


def _of_value(node: ast.AST) -> Iterator[ast.AST]:
    """Change a number, a Boolean, or SQL; change an operator or leave out an operand."""
    match node:
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() as value):
            yield from (ast.Constant(value + step) for step in (1, -1))
        case ast.Constant(str() as value):
            yield from map(ast.Constant, mutate_sql(value))
        case ast.JoinedStr(parts):
            yield from _of_text(parts)
        case ast.BinOp(left, ast.Add(), right):
            yield from (ast.BinOp(left, ast.Sub(), right), left)
        case ast.BinOp(left, ast.Sub(), right):
            yield ast.BinOp(left, ast.Add(), right)
        case ast.BinOp(left, ast.BitOr() | ast.BitAnd(), right) if not _is_none(right):
            yield from (left, right)


def _of_elements(node: ast.AST) -> Iterator[ast.AST]:
    """Leave out an element of a list, a set, a dictionary, or a tuple of texts."""
    match node:
        case ast.List(elements):
            yield from (ast.List(without(elements, index), ast.Load()) for index in range(len(elements)))
        case ast.Set([_, _, *_] as elements):
            yield from (ast.Set(without(elements, index)) for index in range(len(elements)))
        case ast.Tuple([_, _, *_] as elements) if all(map(_is_text_or_starred, elements)):
            yield from (ast.Tuple(without(elements, index), ast.Load()) for index in range(len(elements)))
        case ast.Dict(keys, values):
            yield from (ast.Dict(without(keys, index), without(values, index)) for index in range(len(keys)))


def _of_call(node: ast.AST) -> Iterator[ast.AST]:
    """Leave out a keyword argument; take `max` for `min` and `all` for `any`."""
    if not isinstance(node, ast.Call):
        return
    if isinstance(node.func, ast.Name) and node.func.id in _OTHER_NAMES:
        yield ast.Call(ast.Name(_OTHER_NAMES[node.func.id], ast.Load()), node.args, node.keywords)
    for index, keyword in enumerate(node.keywords):
        if not is_assertion(keyword):
            yield ast.Call(node.func, node.args, without(node.keywords, index))


def _of_text(parts: Sequence[ast.expr]) -> Iterator[ast.AST]:
    """Return the mutants of the SQL in an f-string."""
    text = "".join(
        str(part.value) if isinstance(part, ast.Constant) else chr(_FIRST_HOLE + number)
        for number, part in enumerate(parts)
    )
    for mutated in mutate_sql(text):
        numbers = [ord(character) - _FIRST_HOLE for character in mutated]
        yield ast.JoinedStr(
            [
                parts[number] if 0 <= number < len(parts) else ast.Constant(chr(_FIRST_HOLE + number))
                for number in numbers
            ]
        )


def is_assertion(keyword: ast.keyword) -> bool:
    """Whether an argument only asserts what its caller knows."""
    return keyword.arg == "strict"


def without(values: Sequence[T], index: int) -> list[T]:
    """Return all values but one."""
    return [*values[:index], *values[index + 1 :]]


def _is_plain(test: ast.expr) -> bool:
    """Whether a condition has no comparison or operator that has mutants of its own."""
    return not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp)


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _is_text_or_starred(value: ast.expr) -> bool:
    return isinstance(value, ast.Starred) or (isinstance(value, ast.Constant) and isinstance(value.value, str))
