"""Turn a condition on rows into conditions on files: whether some row may meet it, and whether all rows meet it.

Both follow from one function: whether a condition may have a given outcome for some row of a file. For AND, OR and NOT
it combines the answers for their operands, in SQL's three-valued logic, so that no matching row is ever lost. The
answer for a condition that it does not understand is always "maybe".
"""

from collections.abc import Sequence
from typing import NamedTuple

from ducklake_orch.catalog.parquet import bucket_sql, hashed_as_text
from ducklake_orch.catalog.scan.expression_bounds import (
    MAYBE,
    TRUTH,
    Domain,
    Expressions,
    comparable,
    constant,
    join,
    text_of,
)
from ducklake_orch.catalog.scan.predicate import COMPARISONS, Node
from ducklake_orch.engine.quoting import literal

_FLIPPED = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
# The positive form of each negated condition.
_POSITIVE = {
    "OPERATOR_IS_NOT_NULL": "OPERATOR_IS_NULL",
    "COMPARE_NOT_IN": "COMPARE_IN",
    "COMPARE_DISTINCT_FROM": "COMPARE_NOT_DISTINCT_FROM",
}
_PREFIXES = {"~~", "starts_with", "prefix", "^@"}
# A longer IN list is checked by its least and greatest value only, so that the cost per file stays the same.
_LONG_LIST = 100


class Outcome(NamedTuple):
    """A possible outcome of a condition for a row: true or false (`holds`), or one of these or NULL (`or_null`)."""

    holds: bool
    or_null: bool

    @property
    def negated(self) -> "Outcome":
        """The outcome of the condition without NOT that gives this outcome with NOT; NULL stays NULL."""
        return Outcome(not self.holds, self.or_null)


TRUE, FALSE, NOT_TRUE = Outcome(True, False), Outcome(False, False), Outcome(False, True)


class FileConditions:
    """Builds SQL conditions on files from what the catalog knows about their columns.

    Args:
        expressions: Gives the domains of the operands of comparisons.
    """

    def __init__(self, expressions: Expressions) -> None:
        self._domain = expressions.domain
        self._expressions = expressions

    def may_match(self, tree: Node) -> str:
        """Return the SQL for whether some row of a file may meet a condition."""
        return self.may(tree, TRUE)

    def all_match(self, tree: Node) -> str:
        """Return the SQL for whether every row of a file certainly meets a condition."""
        return f"NOT ({self.may(tree, NOT_TRUE)})"

    def may(self, node: Node, outcome: Outcome) -> str:
        """Return the SQL for whether a condition may have an outcome for some row of a file."""
        kind, parts = node["type"], node.get("children", [])
        if kind in _POSITIVE:
            kind, outcome = _POSITIVE[kind], outcome.negated
        match kind:
            case "OPERATOR_NOT":
                return self.may(parts[0], outcome.negated)
            case "CONJUNCTION_AND" | "CONJUNCTION_OR":
                every = outcome.holds == (kind == "CONJUNCTION_AND")
                return join([self.may(part, outcome) for part in parts], every=every)
            case "OPERATOR_IS_NULL":
                return self._is_null(parts[0], outcome)
            case "COMPARE_BETWEEN":
                return self._between(node["input"], node["lower"], node["upper"], outcome)
            case "COMPARE_IN":
                return self._is_in(parts, outcome)
            case "COMPARE_NOT_DISTINCT_FROM":
                return self._is_same(node["left"], node["right"], outcome)
            case "FUNCTION" if node["function_name"] in _PREFIXES and len(parts) == 2:
                return self._starts_with(parts[0], parts[1], outcome, is_pattern=node["function_name"] == "~~")
            case "FUNCTION" if node["function_name"] == "!~~":
                return self._starts_with(parts[0], parts[1], outcome.negated, is_pattern=True)
        if kind in COMPARISONS:
            return self._compare(COMPARISONS[kind], node["left"], node["right"], outcome)
        alone = self._domain(node)
        return self._possible("=", alone, TRUTH, outcome) if alone and alone.type == "BOOLEAN" else MAYBE

    # --- conditions ----------------------------------------------------------------------------------------------

    def _compare(self, sign: str, left: Node, right: Node, outcome: Outcome) -> str:
        x, y = self._domain(left), self._domain(right)
        return MAYBE if x is None or y is None else self._possible(sign, x, y, outcome)

    def _possible(self, sign: str, x: Domain, y: Domain, outcome: Outcome) -> str:
        """Return the SQL for whether a comparison may have an outcome for some row of a file."""
        if not comparable(x, y):
            return MAYBE
        if not outcome.holds:
            sign = _FLIPPED[sign]
        parts = [x.value, y.value, _bounds(sign, x, y)]
        if sign == "=":
            parts += [self._in_bucket(x, y), self._in_bucket(y, x)]
        possible = join(parts, every=True)
        return join([possible, x.null, y.null], every=False) if outcome.or_null else possible

    def _is_same(self, left: Node, right: Node, outcome: Outcome) -> str:
        x, y = self._domain(left), self._domain(right)
        if x is None or y is None:
            return MAYBE
        nulls = [(x.null, y.null)] if outcome.holds else [(x.null, y.value), (x.value, y.null)]
        values = self._possible("=", x, y, TRUE if outcome.holds else FALSE)
        return join([values, *(join(pair, every=True) for pair in nulls)], every=False)

    def _is_null(self, node: Node, outcome: Outcome) -> str:
        x = self._domain(node)
        if x is None:
            leaf = self._expressions.leaf(node)
            if leaf is None:
                return MAYBE
            n = self._expressions.facts.use(leaf)
            return f"null_{n}" if outcome.holds else f"value_{n}"
        return x.null if outcome.holds else x.value

    def _is_in(self, nodes: Sequence[Node], outcome: Outcome) -> str:
        x, *items = (self._domain(node) for node in nodes)
        constants = [y for y in items if x and y and y.constant and comparable(x, y)]
        if x is None or x.kind == "literal" or len(constants) < len(items) or _mixed(constants):
            return MAYBE
        listed = ", ".join(y.low for y in constants)
        if not outcome.holds:
            # Only a file with one single value, which is in the list, certainly has no row outside the list.
            outside = f"coalesce({x.low} <> {x.high} OR NOT ({x.low} IN ({listed})), true)"
            possible = join([x.value, outside], every=True)
        elif len(constants) <= _LONG_LIST:
            possible = join([self._possible("=", x, y, TRUE) for y in constants], every=False)
        else:
            texts = [f"CAST({y.low} AS {x.type})" if y.kind == "literal" else y.low for y in constants]
            least, most = (f"{name}({', '.join(texts)})" for name in ("least", "greatest"))
            within = f"{x.low} <= {most} AND {least} <= {x.high} AND ({x.low} <> {x.high} OR {x.low} IN ({listed}))"
            possible = join([x.value, f"coalesce({within}, true)"], every=True)
        maybe_null = [x.null, *(y.null for y in constants)] if outcome.or_null else []
        return join([possible, *maybe_null], every=False)

    def _between(self, node: Node, lower: Node, upper: Node, outcome: Outcome) -> str:
        x, low, high = self._domain(node), self._domain(lower), self._domain(upper)
        if x is None or low is None or high is None or x.kind == "literal" or _mixed([low, high]):
            return MAYBE
        ends = [self._possible(">=", x, low, outcome), self._possible("<=", x, high, outcome)]
        return join(ends, every=outcome.holds)

    def _starts_with(self, node: Node, start: Node, outcome: Outcome, *, is_pattern: bool) -> str:
        x, text = self._domain(node), text_of(start)
        if x is None or text is None or x.kind != "text":
            return MAYBE
        prefix, exact = text, True
        if is_pattern:
            special = [text.index(sign) for sign in "%_" if sign in text]
            if not special:
                return self._possible("=", x, constant(literal(text), "VARCHAR"), outcome)
            prefix = text[: min(special)]
            exact = text == f"{prefix}%"
        quoted = literal(prefix)
        if outcome.holds:
            # Truncating texts to a prefix keeps their order.
            bounds = f"left({x.low}, {len(prefix)}) <= {quoted} AND {quoted} <= {x.high}"
        elif exact:
            bounds = f"NOT (starts_with({x.low}, {quoted}) AND starts_with({x.high}, {quoted}))"
        else:
            bounds = MAYBE
        possible = join([x.value, f"coalesce({bounds}, true)"], every=True)
        return join([possible, x.null], every=False) if outcome.or_null else possible

    def _in_bucket(self, x: Domain, y: Domain) -> str:
        """Return the SQL for whether a file of a bucket partition may hold a constant."""
        if x.column is None or not y.constant or not self._expressions.facts.has("bucket", x.column):
            return MAYBE
        if hashed_as_text(x.type):
            return MAYBE  # the engine may have written the value to any bucket
        n = x.column.column_id
        value = f"TRY_CAST({y.low} AS {x.type})"
        # All NaNs are equal, but their hash depends on their sign.
        anywhere = f" OR isnan({value})" if x.type in ("FLOAT", "DOUBLE") else ""
        return f"coalesce({bucket_sql(value, x.type, f'buckets_{n}')} = bucket_{n}{anywhere}, true)"


def _mixed(domains: Sequence[Domain]) -> bool:
    """Return whether text literals are mixed with other types; all of them decide what DuckDB then casts them to."""
    kinds = {domain.kind for domain in domains}
    return "literal" in kinds and len(kinds) > 1


def _bounds(sign: str, x: Domain, y: Domain) -> str:
    """Return the SQL for whether a comparison may be true according to the bounds; unknown bounds exclude nothing."""
    if sign == "=":
        possible = f"{x.low} <= {y.high} AND {y.low} <= {x.high}"
    elif sign == "<>":
        possible = f"{x.low} <> {y.high} OR {x.high} <> {y.low}"
    elif sign in ("<", "<="):
        possible = f"{x.low} {sign} {y.high}"
    else:
        possible = f"{x.high} {sign} {y.low}"
    return f"coalesce({possible}, true)"
