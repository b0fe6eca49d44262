"""Damage bytes and texts at random, as broken disks, truncated uploads and hostile writers do."""

from random import Random

_EXTREMES = [0, 1, 0x7F, 0x80, 0xFE, 0xFF]
# Words that a parser of lengths may trust.
_WORDS = [bytes(4), b"\xff" * 4, b"\x7f" * 4, b"\xff\xff\xff\x7f", b"\x80\x00\x00\x00", b"\xff" * 9 + b"\x01"]


def damaged(content: bytes, pick: Random, *, first: int = 0, last: int | None = None) -> bytes:
    """Return a content with one to four damages.

    Args:
        content: The content.
        pick: The source of randomness.
        first: Where the part to damage begins.
        last: Where it ends; by default at the end of the content.
    """
    last = len(content) if last is None else last
    before, part, after = content[:first], content[first:last], content[last:]
    for _ in range(pick.choice([1, 1, 1, 2, 4])):
        part = pick.choice(_DAMAGES)(part, pick)
    return before + part + after


def _place(content: bytes, pick: Random) -> int:
    return pick.randrange(len(content) + 1)


def _flip_bit(content: bytes, pick: Random) -> bytes:
    at = _place(content[1:], pick)
    return content[:at] + bytes(byte ^ 1 << pick.randrange(8) for byte in content[at : at + 1]) + content[at + 1 :]


def _set_byte(content: bytes, pick: Random) -> bytes:
    at = _place(content[1:], pick)
    value = pick.choice([*_EXTREMES, pick.randrange(256)])
    return content[:at] + bytes([value]) + content[at + 1 :]


def _set_word(content: bytes, pick: Random) -> bytes:
    at, word = _place(content, pick), pick.choice(_WORDS)
    return content[:at] + word + content[at + len(word) :]


def _cut_end(content: bytes, pick: Random) -> bytes:
    return content[: _place(content, pick)]


def _cut_out(content: bytes, pick: Random) -> bytes:
    at = _place(content, pick)
    return content[:at] + content[at + pick.choice([1, 2, 4, 8, 64]) :]


def _insert(content: bytes, pick: Random) -> bytes:
    at = _place(content, pick)
    return content[:at] + pick.randbytes(pick.choice([1, 2, 4, 8, 64])) + content[at:]


def _repeat(content: bytes, pick: Random) -> bytes:
    at = _place(content, pick)
    part = content[at : at + pick.choice([1, 4, 16, 256])]
    return content[:at] + part * pick.choice([2, 3, 50]) + content[at + len(part) :]


def _splice(content: bytes, pick: Random) -> bytes:
    """Replace a part by another part of the same content."""
    at, source, length = _place(content, pick), _place(content, pick), pick.choice([1, 4, 16, 256])
    part = content[source : source + length]
    return content[:at] + part + content[at + len(part) :]


_DAMAGES = [_flip_bit, _flip_bit, _set_byte, _set_byte, _set_word, _cut_end, _cut_out, _insert, _repeat, _splice]

# Characters that end, nest or hide something in SQL, TOML, URLs or paths.
_CHARACTERS = [
    *"'\"`;,.:/\\@#%?&=()[]{}<>$*+-_|~^! \t\n\r",
    "\0",
    "\x1b",
    "é",
    "ß",
    "İ",
    "\u200b",
    "\u202e",
    "😀",
    "\ud800",
]
_TEXTS = [
    "--",
    "/*",
    "*/",
    "$$",
    "$a$",
    "''",
    '""',
    "://",
    "%00",
    "%zz",
    "${",
    "}",
    "..",
    "NULL",
    "nan",
    "-1",
    "9" * 40,
]


def hostile_text(text: str, pick: Random, parts: list[str] | None = None) -> str:
    """Return a text with one to five changes.

    Args:
        text: The text.
        pick: The source of randomness.
        parts: Further texts to insert, which mean something to the reader of the text.
    """
    for _ in range(pick.choice([1, 1, 2, 3, 5])):
        at = pick.randrange(len(text) + 1)
        match pick.randrange(7):
            case 0:
                text = text[:at] + pick.choice(_CHARACTERS) + text[at:]
            case 1:
                text = text[:at] + pick.choice(_TEXTS) + text[at:]
            case 2:
                text = text[:at] + text[at + pick.choice([1, 1, 3, 20]) :]
            case 3:
                text = text[:at]
            case 4:
                part = text[at : at + pick.choice([1, 3, 10])]
                text = text[:at] + part * pick.choice([2, 3, 200]) + text[at:]
            case 5:
                other = pick.randrange(len(text) + 1)
                text = text[:at] + text[other : other + 12] + text[at:]
            case _:
                text = text[:at] + pick.choice(parts or _TEXTS) + text[at:]
    return text
