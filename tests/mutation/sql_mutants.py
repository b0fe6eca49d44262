"""Mutate SQL: drop a condition, an ordering or a NOT, and flip operators, joins and aggregates.

The SQL of a commit is put together from f-strings. A placeholder is one character of a private range here, and counts
as an operand.
"""

import re
from collections.abc import Iterator

_HOLE = "\ue000-\uf8ff"
_IS_SQL = re.compile(
    r"\b(?:SELECT|WHERE|UPDATE|DELETE|INSERT|HAVING|JOIN|UNION|GROUP BY|IS NULL|IN \(|LIKE|CAST|AND|OR)\b"
    rf"|\b(?:select|where)\b|\b[a-z_]+ (?:[<>=]+|in|AS) [({_HOLE}]"
)
_OPERAND = rf"(?:[\w.'{_HOLE}]+(?:\([^()]*\))?(?:::\w+)?)"
_CONDITION = re.compile(
    rf"{_OPERAND} IS (?:NOT )?NULL"
    rf"|{_OPERAND} IS (?:NOT )?DISTINCT FROM {_OPERAND}"
    rf"|{_OPERAND} (?:<=|>=|<>|=|<|>|LIKE) (?:{_OPERAND}|\([^()]*\))"
    rf"|{_OPERAND} (?:NOT )?(?:IN|in) \((?:[^()]|\([^()]*\))*\)"
    rf"|(?<=WHERE )[{_HOLE}]|(?<=AND )[{_HOLE}]|(?<=OR )[{_HOLE}]|(?<=NOT )[{_HOLE}]"
)
_SWAPS = (
    *((r" AND ", " OR "), (r" and ", " or "), (r" OR ", " AND "), (r"IS NULL", "IS NOT NULL"), (r"IS NOT ", "IS ")),
    *((r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" \+ ", " - "), (r" - ", " + ")),
    *((r"\bNOT (?!NULL|DISTINCT)", ""), (r"\bLEFT JOIN\b", "JOIN"), (r"\bDISTINCT (?!FROM)", "")),
    *((r"\bmin\(", "max("), (r"\bmax\(", "min("), (r"\bbool_and\(", "bool_or("), (r"\bsum\(", "max(")),
    *((r"\bcount\(\w+\)", "count(*)"), (r", 0\)", ", 1)"), (r", false\)", ", true)"), (r"\bfalse\b", "true")),
    *((r"(?i) order by [\w. ,]+(?= LIMIT|\)|$)", ""), (r"(?i) group by [\w. ,]+(?=\)|$)", ""), (r"\bTRY_CAST", "CAST")),
    *((r"\bUNION\b(?! ALL)", "UNION ALL"), (r"\bUNION ALL\b", "UNION")),
)


def mutate_sql(text: str) -> Iterator[str]:
    """Return the mutants of SQL text; none for text that is not SQL."""
    if not _IS_SQL.search(text) and text.strip() not in ("AND", "OR"):
        return
    seen = {text}
    for match in _CONDITION.finditer(text):
        around = text[max(match.start() - 4, 0) : match.start()] + text[match.end() : match.end() + 4]
        constant = "false" if "OR " in around else "true"
        mutated = text[: match.start()] + constant + text[match.end() :]
        if mutated not in seen:
            seen.add(mutated)
            yield mutated
    for pattern, new in _SWAPS:
        for match in re.finditer(pattern, text):
            mutated = text[: match.start()] + new + text[match.end() :]
            if mutated not in seen:
                seen.add(mutated)
                yield mutated
