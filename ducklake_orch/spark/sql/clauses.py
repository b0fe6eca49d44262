"""Cut statements of Spark's SQL into the texts of their clauses."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from sqlglot import Token, TokenType

from ducklake_orch.engine.quoting import identifier
from ducklake_orch.errors import UnsupportedStatementError
from ducklake_orch.spark.sql.statement import tokens_of

_DEEPER = {TokenType.L_PAREN: 1, TokenType.L_BRACKET: 1, TokenType.CASE: 1}
_HIGHER = {TokenType.R_PAREN: 1, TokenType.R_BRACKET: 1, TokenType.END: 1}
# What SHOW lists: first what a pattern can select.
_LISTED = ("TABLES", "SCHEMAS", "DATABASES", "NAMESPACES")
_SHOWN = (*_LISTED, "COLUMNS", "PARTITIONS")
Side = Literal["matched", "not matched", "by source"]


@dataclass(frozen=True)
class When:
    """A clause WHEN of MERGE.

    Attributes:
        side: The rows that it is for: pairs of rows, rows of the source, or rows of the table without a partner.
        condition: Its further condition.
        action: What is done to them.
        values: The expressions, by column; empty for UPDATE SET * and INSERT *.
    """

    side: Side
    condition: str | None
    action: Literal["update", "delete", "insert"]
    values: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Merge:
    """The parts of MERGE.

    Attributes:
        source: The table or query after USING, with its alias.
        on: The condition after ON.
        whens: Its clauses, in order.
    """

    source: str
    on: str
    whens: tuple[When, ...]


@dataclass(frozen=True)
class AlteredLayout:
    """The parts of ALTER TABLE that changes partition keys or sort keys.

    Attributes:
        table: The name of the table.
        clause: What it does: adds, drops or replaces a partition key, or sets the sort keys.
        keys: One partition key; for REPLACE, the old and the new one; for ORDERED, the sort keys in DuckDB's SQL.
    """

    table: str
    clause: Literal["ADD", "DROP", "REPLACE", "ORDERED"]
    keys: tuple[str, ...]


@dataclass(frozen=True)
class DroppedColumns:
    """The parts of ALTER TABLE … DROP COLUMN[S].

    Attributes:
        table: The name of the table, as written.
        columns: The names of the columns, without quotes.
        if_exists: Whether columns may be missing.
    """

    table: str
    columns: tuple[str, ...]
    if_exists: bool


@dataclass(frozen=True)
class Shown:
    """The parts of SHOW.

    Attributes:
        what: The word after SHOW.
        within: The name after IN or FROM; for PARTITIONS, the table.
        pattern: The pattern after LIKE.
    """

    what: str
    within: str | None
    pattern: str | None

    def fits(self, name: str) -> bool:
        """Whether a name fits the pattern, as Spark compares them."""
        parts = (self.pattern or "*").lower().split("|")
        return any(fnmatchcase(name.lower(), part.strip().replace("[", "[[]").replace("?", "[?]")) for part in parts)


class _Words:
    """The words of a text. Searches find only words outside of parentheses and CASE."""

    def __init__(self, text: str) -> None:
        self.text, self.tokens = text, tokens_of(text)
        while self.tokens and self.tokens[-1].token_type is TokenType.SEMICOLON:
            self.tokens.pop()
        self._depths, depth = [], 0
        for token in self.tokens:
            depth -= _HIGHER.get(token.token_type, 0)
            self._depths.append(depth)
            depth += _DEEPER.get(token.token_type, 0)

    def find(self, word: str, first: int = 0, last: int | None = None) -> int | None:
        """Return the index of the first such word from an index on."""
        return next(self.all(word, first, last), None)

    def all(self, word: str, first: int = 0, last: int | None = None) -> Iterator[int]:
        """Return the indexes of such words."""
        for index in range(first, len(self.tokens) if last is None else last):
            if self._depths[index] == 0 and self.tokens[index].text.upper() == word and self._is_word(index):
                yield index

    def upper(self, index: int) -> str:
        """Return a word in upper case; an empty text after the last word."""
        return self.tokens[index].text.upper() if index < len(self.tokens) else ""

    def cut(self, first: int, last: int | None = None) -> str:
        """Return the text from one word up to another."""
        tokens: Sequence[Token] = self.tokens[first:last]
        return self.text[tokens[0].start : tokens[-1].end + 1] if tokens else ""

    def in_duckdb(self, first: int, last: int) -> str:
        """Return the text from one word up to another, with names quoted as in DuckDB's SQL."""
        text = self.cut(first, last)
        for index in filter(self._is_quoted, reversed(range(first, last))):
            start, end = (at - self.tokens[first].start for at in (self.tokens[index].start, self.tokens[index].end))
            text = text[:start] + identifier(self.tokens[index].text) + text[end + 1 :]
        return text

    def name_end(self, first: int) -> int:
        """Return the index after a name, whose parts are separated by dots."""
        last = first + 1
        while last + 1 < len(self.tokens) and self.tokens[last].token_type is TokenType.DOT:
            last += 2
        return min(last, len(self.tokens))

    def parts(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Return the ranges between commas."""
        for comma in [*self.all(",", first, last), last]:
            yield first, comma
            first = comma + 1

    def _is_word(self, index: int) -> bool:
        token = self.tokens[index]
        is_field = index > 0 and self.tokens[index - 1].token_type is TokenType.DOT
        return token.token_type is not TokenType.STRING and not self._is_quoted(index) and not is_field

    def _is_quoted(self, index: int) -> bool:
        return self.text[self.tokens[index].start] == "`"


def condition_of(text: str) -> str | None:
    """Return the condition of DELETE or UPDATE; None without one."""
    words = _Words(text)
    where = words.find("WHERE")
    return None if where is None else words.cut(where + 1)


def assignments_of(text: str) -> dict[str, str]:
    """Return the expressions of UPDATE, by the names as written."""
    words = _Words(text)
    start, where = words.find("SET"), words.find("WHERE")
    if start is None:
        raise _not_understood(text)
    return _assignments(words, start + 1, len(words.tokens) if where is None else where)


def columns_of(text: str, after: int) -> str:
    """Return the columns of CREATE TABLE, which are the first list in parentheses after a position."""
    words = _Words(text[after:])
    opening, closing = words.find("("), words.find(")")
    if opening is None or closing is None:
        raise _not_understood(text)
    return words.cut(opening + 1, closing)


def added_columns_of(text: str) -> str:
    """Return the columns of ALTER TABLE … ADD COLUMN[S]."""
    words = _Words(text)
    add = words.find("ADD")
    first = None if add is None else add + 1 + (words.upper(add + 1) in ("COLUMN", "COLUMNS"))
    if first is None:
        raise _not_understood(text)
    return ", ".join(_listed(words.cut(first))) if words.upper(first) == "(" else words.cut(first)


def _words_of_alter_table(text: str) -> _Words | None:
    """Return the words of ALTER TABLE; None of other statements, most of which are not cut into words for this."""
    if "alter" not in text.lower():
        return None
    words = _Words(text)
    return words if [words.upper(0), words.upper(1)] == ["ALTER", "TABLE"] else None


def altered_layout_of(text: str) -> AlteredLayout | None:
    """Return the parts of ALTER TABLE with PARTITION FIELD, or with WRITE [UN]ORDERED; None of other statements."""
    if (words := _words_of_alter_table(text)) is None:
        return None
    field, write = words.find("FIELD", 3), words.find("WRITE", 3)
    if field is not None and words.upper(field - 1) == "PARTITION":
        clause = words.upper(field - 2)
        table, within = words.cut(2, field - 2), words.find("WITH", field)
        match clause:
            case "ADD" | "DROP" if within is None:
                return AlteredLayout(table, clause, (words.cut(field + 1),))
            case "REPLACE" if within is not None:
                return AlteredLayout(table, "REPLACE", (words.cut(field + 1, within), words.cut(within + 1)))
    if write is not None and words.upper(write + 1) == "UNORDERED" and len(words.tokens) == write + 2:
        return AlteredLayout(words.cut(2, write), "ORDERED", ())
    if write is not None and [words.upper(write + 1), words.upper(write + 2)] == ["ORDERED", "BY"]:
        keys = tuple(words.in_duckdb(first, last) for first, last in words.parts(write + 3, len(words.tokens)))
        return AlteredLayout(words.cut(2, write), "ORDERED", keys)
    return None


def dropped_columns_of(text: str) -> DroppedColumns | None:
    """Return the parts of ALTER TABLE … DROP COLUMN[S]; None of other statements."""
    words = _words_of_alter_table(text)
    drop = None if words is None else words.find("DROP", 3)
    if words is None or drop is None or words.upper(drop + 1) not in ("COLUMN", "COLUMNS"):
        return None
    if_exists = [words.upper(drop + 2), words.upper(drop + 3)] == ["IF", "EXISTS"]
    listed = words.cut(drop + (4 if if_exists else 2))
    names = _Words(listed[1:-1] if listed.startswith("(") and listed.endswith(")") else listed)
    columns = []
    for first, last in names.parts(0, len(names.tokens)):
        if last != first + 1:
            raise UnsupportedStatementError(
                f"`sql` drops top-level columns only, not `{names.cut(first, last)}`.",
                remedy="Name columns of the table, or use `lake.execute`.",
            )
        columns.append(names.tokens[first].text)
    return DroppedColumns(words.cut(2, drop), tuple(columns), if_exists)


def shown_of(text: str) -> Shown:
    """Return the parts of SHOW."""
    words = _Words(_after_first_word(text))
    what, at, within, pattern = words.upper(0), 1, None, None
    if what not in _SHOWN:
        return Shown(what, None, None)
    at += words.upper(at) in ("IN", "FROM")
    if at > 1 or what == "PARTITIONS":
        within, at = words.cut(at, words.name_end(at)) or None, words.name_end(at)
    text_at = at + (words.upper(at) == "LIKE")
    if what in _LISTED and text_at < len(words.tokens) and words.tokens[text_at].token_type is TokenType.STRING:
        pattern, at = words.tokens[text_at].text, text_at + 1
    if at != len(words.tokens):
        raise UnsupportedStatementError(
            f"`sql` does not understand `{text[:80]}`.",
            remedy="Write SHOW TABLES [IN schema] [LIKE 'pattern'], SHOW SCHEMAS, or SHOW COLUMNS IN table.",
        )
    return Shown(what, within, pattern)


def call_of(text: str) -> tuple[str, list[tuple[str | None, str]]]:
    """Return the procedure of CALL, and its arguments with the names that are given."""
    words = _Words(_after_first_word(text))
    opening = words.find("(")
    if not opening or not words.cut(opening).endswith(")"):
        raise UnsupportedStatementError(f"`{text[:80]}` calls nothing.", remedy="Write `CALL procedure(arguments)`.")
    arguments: list[tuple[str | None, str]] = []
    for part in _listed(words.cut(opening)):
        name, arrow, value = part.partition("=>")
        if part:
            arguments.append((name.strip(), value.strip()) if arrow and name.strip().isidentifier() else (None, part))
    return words.cut(0, opening), arguments


def merge_of(text: str) -> Merge:
    """Return the parts of MERGE."""
    words = _Words(text)
    using = words.find("USING")
    on = words.find("ON", using or 0)
    starts = list(words.all("WHEN", on or 0))
    if using is None or on is None or not starts:
        raise _not_understood(text)
    ends = [*starts[1:], len(words.tokens)]
    whens = tuple(_when(words, first, last) for first, last in zip(starts, ends, strict=True))
    return Merge(words.cut(using + 1, on), words.cut(on + 1, starts[0]), whens)


def _when(words: _Words, first: int, last: int) -> When:
    then = words.find("THEN", first, last)
    if then is None:
        raise _not_understood(words.cut(first, last))
    at = first + 1
    is_not = words.upper(at) == "NOT"
    at += is_not + 1
    side: Side = "not matched" if is_not else "matched"
    if words.upper(at) == "BY":
        side = "by source" if words.upper(at + 1) == "SOURCE" else side
        at += 2
    condition = words.cut(at + 1, then) if words.upper(at) == "AND" else None
    if condition is None and at != then:
        raise _not_understood(words.cut(first, last))
    match words.upper(then + 1):
        case "DELETE" if last == then + 2:
            return When(side, condition, "delete")
        case "UPDATE" if words.upper(then + 2) == "SET":
            every = words.upper(then + 3) == "*"
            return When(side, condition, "update", {} if every else _assignments(words, then + 3, last))
        case "INSERT":
            return When(side, condition, "insert", _inserted(words, then + 2, last))
    raise _not_understood(words.cut(first, last))


def _assignments(words: _Words, first: int, last: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for start, end in words.parts(first, last):
        sign = words.find("=", start, end)
        if sign is None or sign == start or (name := words.cut(start, sign)) in found:
            raise _not_understood(words.cut(first, last))
        found[name] = words.cut(sign + 1, end)
    return found


def _inserted(words: _Words, first: int, last: int) -> dict[str, str]:
    """Return the expressions of INSERT in MERGE, by column; none for INSERT *."""
    if words.upper(first) == "*" and last == first + 1:
        return {}
    values = words.find("VALUES", first, last)
    if values is None or values == first:
        raise _not_understood(words.cut(first, last))
    names, expressions = _listed(words.cut(first, values)), _listed(words.cut(values + 1, last))
    if len(names) != len(expressions):
        raise UnsupportedStatementError(
            f"INSERT names {len(names)} columns and has {len(expressions)} values.", remedy="Give each column a value."
        )
    return dict(zip(names, expressions, strict=True))


def _listed(text: str) -> list[str]:
    """Return the parts of a list in parentheses."""
    if not (text.startswith("(") and text.endswith(")")):
        raise _not_understood(text)
    words = _Words(text[1:-1])
    return [words.cut(first, last) for first, last in words.parts(0, len(words.tokens))]


def _after_first_word(text: str) -> str:
    """Return the text after SHOW or CALL, which sqlglot takes for one word."""
    return text[tokens_of(text)[0].end + 1 :]


def _not_understood(text: str) -> UnsupportedStatementError:
    return UnsupportedStatementError(
        f"`sql` does not understand `{text[:80]}`.", remedy="Call `lake.merge`, `lake.update` or `lake.delete`."
    )
