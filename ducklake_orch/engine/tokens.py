"""Divide SQL into tokens with the engine's own tokenizer: quotes and comments end where the engine ends them."""

import re
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple

import duckdb

from ducklake_orch.engine.quoting import UNSTORABLE
from ducklake_orch.errors import StatementError

# A quoted name, a word, or else one sign of an operator. Bytes above 127 belong to letters.
_TEXT = re.compile(rb'"(?:[^"]|"")*+"|[\w\x80-\xff][\w$\x80-\xff]*+|.', re.DOTALL)
_NOT_IN_WORDS = re.compile(rb'[^\w"\x80-\xff]')


class Token(NamedTuple):
    """A token of a statement.

    Attributes:
        start: Where it begins, in bytes.
        text: Its text: a whole name, number or keyword, else its first byte.
        is_string: Whether it is a string; `text` is then only its beginning.
    """

    start: int
    text: bytes
    is_string: bool


def refuse_unreadable(sql: str) -> None:
    """Refuse SQL with a character that the engine does not read.

    Raises:
        StatementError: When the SQL has a NUL, at which the engine silently stops reading, or is not Unicode.
    """
    if (found := UNSTORABLE.search(sql)) is None:
        return
    where = f"Character {found.start() + 1} of the SQL"
    if found[0] == "\0":
        raise StatementError(f"{where} is NUL.", remedy="Remove it, or write `chr(0)`.")
    raise StatementError(f"{where} is not Unicode.", remedy="Remove it.")


def tokens_of(sql: str) -> list[Token]:
    """Return the tokens of SQL, without comments; an unterminated string or comment and what follows it has none."""
    text = sql.encode(errors="replace")  # half a surrogate pair, which the engine does not take
    return [_token(text, start, kind) for start, kind in duckdb.tokenize(text.decode())]


def is_divisible(sql: str) -> bool:
    """Whether the engine can divide SQL into tokens up to its end."""
    last = f"{sql}\n1"
    return tokens_of(last)[-1:] == [Token(len(last.encode(errors="replace")) - 1, b"1", is_string=False)]


def _token(text: bytes, start: int, kind: IntEnum | Any) -> Token:
    found = _TEXT.match(text, start)
    return Token(start, found[0] if found else b"", kind == duckdb.token_type.string_const)


def bare(sql: str) -> str:
    """Return SQL without comments and strings; in quoted names, signs become `_`, so that no name looks like SQL."""
    return b"".join(_bare_parts(tokens_of(sql))).decode(errors="replace")


def _bare_parts(tokens: list[Token]) -> Iterator[bytes]:
    end = 0
    for token in tokens:
        if token.start > end:
            yield b" "
        if token.is_string:
            yield b"' '"
        else:
            yield _NOT_IN_WORDS.sub(b"_", token.text) if token.text.startswith(b'"') else token.text
        end = token.start + len(token.text)
