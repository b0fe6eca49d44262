"""Parse a statement in Spark's SQL and find the tables that it names: `parse_statement`.

The text itself is never written anew: what Spark runs is the user's text, in which only names of tables are replaced.
So sqlglot decides where the names are, and Spark what everything else means.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import sqlglot
from sqlglot import Token, TokenType, exp

from ducklake_orch.errors import ConfigError, StatementError

# The base class of all nodes has another name since sqlglot 30.
if TYPE_CHECKING:
    Node: TypeAlias = exp.Expr
else:
    Node = exp.Expression

# A placeholder of `spark.sql`, as in `SELECT * FROM {orders}`.
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
_CHANGES = "changes"
_TRAVELS: dict[str, Literal["snapshot", "time"]] = {
    "VERSION": "snapshot",
    "SYSTEM_VERSION": "snapshot",
    "TIMESTAMP": "time",
    "SYSTEM_TIME": "time",
}
_LITERALS = (TokenType.STRING, TokenType.NUMBER)


@dataclass(frozen=True)
class TimeTravel:
    """The clause `VERSION AS OF` or `TIMESTAMP AS OF` of a table.

    Attributes:
        kind: Whether the expression is a snapshot or a time.
        expression: Its text, in Spark's SQL.
        end: Where it ends in the statement.
    """

    kind: Literal["snapshot", "time"]
    expression: str
    end: int


@dataclass(frozen=True)
class Reference:
    """A table that a statement names.

    Attributes:
        node: The table in the parse tree.
        parts: The parts of the name.
        start: Where the name starts in the statement.
        end: Where the name, with its time, ends.
        alias_at: Where an alias would be written.
        travel: The time at which the table is to be read.
        arguments: The arguments of the table function `changes`, if it is called; then `parts` are its table.
    """

    node: exp.Table
    parts: tuple[str, ...]
    start: int
    end: int
    alias_at: int
    travel: TimeTravel | None = None
    arguments: tuple[Node, ...] | None = None

    @property
    def name(self) -> str:
        """The name as users write it."""
        return ".".join(self.parts)

    @property
    def alias(self) -> str | None:
        """The alias that the statement gives."""
        return self.node.alias or None


@dataclass(frozen=True)
class Statement:
    """A parsed statement.

    Attributes:
        text: The text as given.
        tree: Its parse tree.
        references: The tables that it names, without those of its own WITH clauses and its placeholders.
        has_placeholders: Whether Spark fills in placeholders in braces.
    """

    text: str
    tree: Node
    references: Sequence[Reference]
    has_placeholders: bool


@dataclass
class _Masked:
    """A text that sqlglot can parse, in which every name is at the same place as in the statement.

    Attributes:
        text: The text.
        travels: The times of tables, by the position where the name before them ends.
        calls: The arguments of calls of `changes`, by the position where the call starts.
        ends: Where those calls end.
    """

    text: str
    travels: dict[int, TimeTravel] = field(default_factory=dict)
    calls: dict[int, tuple[Node, ...]] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)


def parse_statement(text: str, frames: Mapping[str, Any]) -> Statement:
    """Parse a statement.

    Args:
        text: One statement in Spark's SQL.
        frames: What the placeholders mean, by name.

    Raises:
        StatementError: When the text is not one statement, or sqlglot cannot parse it.
    """
    masked = _masked(text, frames)
    tree, tokens = parsed(masked.text), tokens_of(masked.text)
    references = [_reference(node, text, masked, tokens) for node in tree.find_all(exp.Table) if _is_named(node, text)]
    references.sort(key=lambda reference: reference.start)
    return Statement(text, tree, references, bool(frames))


def tokens_of(text: str) -> list[Token]:
    """Return the words and signs of a text in Spark's SQL."""
    try:
        return list(sqlglot.tokenize(text, dialect="spark"))
    except sqlglot.errors.SqlglotError as error:
        raise _not_parsed(error) from None


def is_command(tree: Node, word: str) -> bool:
    """Whether a statement begins with a word after which sqlglot parses nothing, such as SHOW."""
    return isinstance(tree, exp.Command) and str(tree.this).upper() == word


def parsed(text: str) -> Node:
    """Return the parse tree of one statement or expression in Spark's SQL."""
    # The logger announces that a statement is kept as text, which is refused below.
    logger = logging.getLogger("sqlglot")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        trees = [tree for tree in sqlglot.parse(text, dialect="spark") if tree is not None]
    except sqlglot.errors.SqlglotError as error:
        raise _not_parsed(error) from None
    finally:
        logger.setLevel(level)
    if len(trees) != 1:
        what = f"The text has {len(trees)} statements." if trees else "The text has no statement."
        raise StatementError(what, remedy="Give one statement for each call of `sql`.")
    return trees[0]


def _not_parsed(error: Exception) -> StatementError:
    details = getattr(error, "errors", None)
    if details:
        where = f" in line {details[0]['line']}, column {details[0]['col']}"
        reason = f"{details[0]['description'].rstrip('.')}{where}"
    else:
        reason = str(error).splitlines()[0]
    return StatementError(
        f"The statement cannot be parsed as Spark's SQL: {reason}.",
        remedy="Write Spark's SQL. For DuckDB's SQL, call `lake.execute` or `lake.connect`.",
    )


# --- what sqlglot does not parse everywhere --------------------------------------------------------------------------


def _masked(text: str, frames: Mapping[str, Any]) -> _Masked:
    masked = _Masked(_without_placeholders(text, frames) if frames else text)
    characters, tokens = list(masked.text), tokens_of(masked.text)
    for index, token in enumerate(tokens):
        if (travel := _travel(tokens, index, text)) is not None and index > 0:
            masked.travels[tokens[index - 1].end + 1] = travel
            characters[token.start : travel.end] = " " * (travel.end - token.start)
        elif (last := _call_end(tokens, index)) is not None:
            end = tokens[last].end + 1
            call = parsed(masked.text[token.start : end])
            masked.calls[token.start], masked.ends[token.start] = tuple(call.args.get("expressions", ())), end
            characters[token.start : end] = f"`{'_' * (end - token.start - 2)}`"
    if (null := _no_comment(tokens)) is not None:
        characters[null.start : null.end + 1] = "''  "
    masked.text = "".join(characters)
    return masked


def _no_comment(tokens: Sequence[Token]) -> Token | None:
    """Return the last word of COMMENT ON … IS NULL, which means the same as IS ''."""
    words = [token for token in tokens if token.token_type is not TokenType.SEMICOLON]
    is_comment = [token.text.upper() for token in (*words[:1], *words[-2:])] == ["COMMENT", "IS", "NULL"]
    return words[-1] if is_comment and words[-1].token_type is TokenType.NULL else None


def _without_placeholders(text: str, frames: Mapping[str, Any]) -> str:
    """Return the text with a quoted name of the same length for each placeholder."""

    def name(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        root = re.split(r"[.\[!:]", match[1], maxsplit=1)[0]
        if root not in frames:
            given = ", ".join(f"`{known}`" for known in frames)
            raise ConfigError(f"`{match[0]}` names no argument of `sql`.", remedy=f"Given are {given}.")
        inner = match[1].replace("`", "_")
        return f"`{inner}`"

    return _PLACEHOLDER.sub(name, text)


def _travel(tokens: Sequence[Token], index: int, text: str) -> TimeTravel | None:
    """Return the time of a table, if its clause starts at a token."""
    at = index + (tokens[index].text.upper() == "FOR")
    words = [token.text.upper() for token in tokens[at : at + 3]]
    if len(words) < 3 or words[0] not in _TRAVELS or words[1:] != ["AS", "OF"]:
        return None
    if at == index and tokens[index - 1].text.upper() == "FOR":
        return None  # the clause has started one token earlier
    first = at + 3
    last = _expression_end(tokens, first)
    if last is None:
        return None
    end = tokens[last].end + 1
    return TimeTravel(_TRAVELS[words[0]], text[tokens[first].start : end], end)


def _expression_end(tokens: Sequence[Token], first: int) -> int | None:
    """Return the last token of a literal, a parameter or a call of a function."""
    kinds = [token.token_type for token in tokens[first : first + 2]]
    if not kinds:
        return None
    if kinds[0] in _LITERALS or kinds[0] is TokenType.PLACEHOLDER:
        return first
    if len(kinds) < 2 or tokens[first].text.upper() in ("FROM", "WHERE", "SELECT"):
        return None
    if kinds[0] is TokenType.COLON or kinds[1] is TokenType.STRING:
        return first + 1
    return _closing(tokens, first + 1) if kinds[1] is TokenType.L_PAREN else None


def _call_end(tokens: Sequence[Token], index: int) -> int | None:
    """Return the last token of a call of `changes` that starts at a token."""
    is_call = tokens[index].text.lower() == _CHANGES and tokens[index].token_type is not TokenType.STRING
    if not is_call or len(tokens) < index + 2 or tokens[index + 1].token_type is not TokenType.L_PAREN:
        return None
    if index == 0 or tokens[index - 1].text.upper() not in ("FROM", "JOIN", ","):
        return None
    return _closing(tokens, index + 1)


def _closing(tokens: Sequence[Token], opening: int) -> int | None:
    """Return the token that closes a parenthesis."""
    depth = 0
    for index in range(opening, len(tokens)):
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(tokens[index].token_type, 0)
        if depth == 0:
            return index
    return None


# --- tables ----------------------------------------------------------------------------------------------------------


def _is_named(node: exp.Table, text: str) -> bool:
    """Return whether a node names a table that is not defined by the statement itself."""
    parts = _identifiers(node)
    if not parts or parts[0].meta.get("start") is None or text[parts[0].meta["start"]] == "{":
        return False
    if node.find_ancestor(exp.Hint) is not None:
        return False
    return len(parts) > 1 or parts[0].name.lower() not in set(_common_tables(node))


def _identifiers(node: exp.Table) -> list[exp.Identifier]:
    parts = [part for part in node.parts if isinstance(part, exp.Identifier)]
    return parts if len(parts) == len(node.parts) else []


def _common_tables(node: Node) -> Iterator[str]:
    """Return the names of the WITH clauses that a node can see."""
    within = {id(node)}
    parent: Any = node.parent
    while parent is not None:
        clause = parent.args.get("with_") or parent.args.get("with")
        for table in clause.expressions if isinstance(clause, exp.With) else ():
            if id(table) in within:
                if clause.args.get("recursive"):
                    yield table.alias.lower()
                break
            yield table.alias.lower()
        within.add(id(parent))
        parent = parent.parent


def _reference(node: exp.Table, text: str, masked: _Masked, tokens: Sequence[Token]) -> Reference:
    identifiers = _identifiers(node)
    start, end = identifiers[0].meta["start"], identifiers[-1].meta["end"] + 1
    arguments = masked.calls.get(start)
    parts = tuple(part.name for part in identifiers) if arguments is None else _table_of(arguments)
    travel = masked.travels.get(end)
    end = masked.ends.get(start, travel.end if travel else end)
    return Reference(node, parts, start, end, _alias_at(tokens, end), travel, arguments)


def _table_of(arguments: Sequence[Node]) -> tuple[str, ...]:
    """Return the parts of the name that the first argument of `changes` is."""
    if not arguments or not isinstance(arguments[0], exp.Literal) or not arguments[0].is_string:
        raise StatementError(
            "The first argument of `changes` is not the name of a table.", remedy="Write `changes('orders', 3, 7)`."
        )
    return tuple(part.name for part in exp.to_table(arguments[0].this, dialect="spark").parts)


def _alias_at(tokens: Sequence[Token], end: int) -> int:
    """Return where the alias of a table is written: after its sample."""
    index = next((index for index, token in enumerate(tokens) if token.start >= end), len(tokens))
    for word in ("TABLESAMPLE", "REPEATABLE"):
        if index + 1 < len(tokens) and tokens[index].text.upper() == word:
            closing = _closing(tokens, index + 1)
            if closing is not None:
                end, index = tokens[closing].end + 1, closing + 1
    return end
