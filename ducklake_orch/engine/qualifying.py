"""Qualify names where a schema has the same name as the lake, which DuckDB otherwise refuses as ambiguous.

With a lake and a schema `shop`, DuckDB takes `shop` in `shop.orders` for either. As everywhere in ducklake-orch, the
first of two parts means the schema, so the statement is run with `shop.shop.orders`.
"""

from collections.abc import Callable
from typing import Any

import duckdb

from ducklake_orch.engine.quoting import folded, identifier
from ducklake_orch.engine.tokens import Token, tokens_of

_AMBIGUOUS = "Ambiguous reference to catalog or schema"
# Keywords that the name of a table, a view or a function follows.
_BEFORE_A_TABLE = frozenset(
    b"from join into update table view exists using call describe summarize replace macro function only".split()
)
# Functions that every lake has in its schema `main`.
_LAKE_FUNCTIONS = frozenset(
    "snapshots current_snapshot last_committed_snapshot table_info table_insertions table_deletions table_changes"
    " options set_option set_commit_message".split()
)


def run_qualified(run: Callable[..., Any], alias: str, sql: str, *args: Any, **options: Any) -> Any:
    """Run a statement; if a schema with the lake's name makes its names ambiguous, run it again with qualified names.

    Args:
        run: Runs the statement. An ambiguous statement fails before it has any effect.
        alias: The name of the lake in SQL.
        sql: The statement.
        *args: Passed to `run`.
        **options: Passed to `run`.
    """
    failure: duckdb.Error | None = None
    for everywhere in (None, False, True):
        text = sql if everywhere is None else qualified(sql, alias, everywhere=everywhere)
        try:
            return run(text, *args, **options)
        except duckdb.BinderException as error:
            # Report the error of the original text, which its author can understand.
            failure = failure or error
            if _AMBIGUOUS not in str(error):
                failure = error
                break
    assert failure is not None  # noqa: S101 - else it had run
    raise failure


def qualified(sql: str, alias: str, *, everywhere: bool = False) -> str:
    """Put the lake before the names of a statement that begin with a schema of the lake's name.

    Args:
        sql: The statement.
        alias: The name of the lake in SQL.
        everywhere: Whether every name of two parts is taken for a table's name, not only after keywords such as `FROM`
            and `JOIN`, where it cannot be a column.
    """
    text = sql.encode()
    tokens = tokens_of(sql)
    result, done = b"", 0
    for index, token in enumerate(tokens):
        before = tokens[index - 1].text.lower() if index else b""
        if not _names(token, alias) or before == b".":
            continue
        parts = 1
        while index + 2 * parts < len(tokens) and tokens[index + 2 * parts - 1].text == b".":
            parts += 1
        if _is_meant(tokens, index, parts, everywhere=everywhere):
            called = tokens[index + 2].text.decode() if parts == 2 else ""
            calls = before not in (b"into", b"table") and tokens[index + 3 : index + 4]
            of_the_lake = calls and calls[0].text == b"(" and called.lower() in _LAKE_FUNCTIONS
            result += text[done : token.start] + identifier(alias).encode() + b"."
            done = token.start
            if of_the_lake:
                result += b"main"
                done = token.start + len(token.text)
    return (result + text[done:]).decode()


def _is_meant(tokens: list[Token], index: int, parts: int, *, everywhere: bool) -> bool:
    words = [token.text.lower() for token in tokens[max(0, index - 2) : index]]
    if parts == 1:
        return words == [b"tables", b"from"]
    if parts == 3:
        return words == [b"on", b"column"]
    return parts == 2 and (everywhere or (words[-1:] != [] and words[-1] in _BEFORE_A_TABLE))


def _names(token: Token, alias: str) -> bool:
    name = token.text.decode(errors="replace")
    name = name[1:-1].replace('""', '"') if name.startswith('"') else name
    return folded(name) == folded(alias)
