"""Find the columns of lake tables that each column of a Spark DataFrame is computed from: `column_sources`.

`lake.read` marks the DataFrame of a table by an alias that names the table. The alias stays in the analyzed plan of
every DataFrame that is derived from it, and the optimizer removes it. The plan says by the ids of its attributes how
columns are computed. Where a plan has a node that is not known here, columns that depend on it have no entry.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ducklake_orch.catalog.metadata import TableDef

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("ducklake_orch")
_MARK = "ducklake:"
# Spark offers this column of every file scan. It is not a column of the table.
_HIDDEN = "_metadata"
# Nodes whose columns are those of their only child.
_PASSING = {
    "CTERelationDef",
    "CollectMetrics",
    "Deduplicate",
    "Distinct",
    "Filter",
    "GlobalLimit",
    "LocalLimit",
    "Offset",
    "RebalancePartitions",
    "Repartition",
    "RepartitionByExpression",
    "ResolvedHint",
    "Sample",
    "Sort",
    "Tail",
    "View",
}
_PROJECTING = {"Project": "projectList", "Aggregate": "aggregateExpressions"}
_JOINS_OF_BOTH = {"Inner$", "Cross$", "LeftOuter$", "RightOuter$", "FullOuter$"}
_JOINS_OF_LEFT = {"LeftSemi$", "LeftAnti$"}
_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical."


@dataclass(frozen=True, order=True)
class SourceColumn:
    """A column of a lake's table.

    Attributes:
        lake: The mark of the lake, as in the names of its files.
        schema: The schema of the table.
        table: The table.
        column: The column.
    """

    lake: str
    schema: str
    table: str
    column: str


# None: it is unknown what the column is computed from.
Sources = frozenset[SourceColumn] | None
ExprId = tuple[int, str]


def marked(frame: "DataFrame", table: TableDef) -> "DataFrame":
    """Return the DataFrame of a table, marked with the table. Spark Connect cannot show plans, so it has no marks."""
    if not _is_classic(frame) or not table.lake_mark:
        return frame
    return frame.alias(_MARK + json.dumps([table.schema, table.name, table.lake_mark], ensure_ascii=False))


def column_sources(frame: "DataFrame") -> dict[str, frozenset[SourceColumn]]:
    """Return the columns of lake tables that each column of a DataFrame is computed from.

    Columns that only decide which rows there are, such as those in filters, join conditions and grouping keys, are not
    among them. A column has no entry if it is computed from no table, or if the plan does not prove what it is computed
    from: after functions on whole partitions, checkpoints and conversions to other frames, and in subqueries.

    Args:
        frame: The DataFrame. One of Spark Connect has no entries.
    """
    if not _is_classic(frame):
        return {}
    try:
        output = _Plan(json.loads(frame._jdf.queryExecution().analyzed().toJSON())).output
    except Exception:  # lineage is extra: a plan of an unknown form must not fail the write that it describes
        log.warning("The column lineage of a DataFrame is unknown.", exc_info=True)
        return {}
    if not output.is_complete:
        return {}
    return {column.name: column.sources for column in output.columns if column.sources}


def _is_classic(frame: "DataFrame") -> bool:
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    return isinstance(frame, ClassicDataFrame)


@dataclass(frozen=True)
class _Node:
    """A node of a plan.

    Attributes:
        kind: Its class, without the package.
        fields: Its fields, as Spark prints them.
        children: The nodes below it.
    """

    kind: str
    fields: Mapping[str, Any]
    children: Sequence["_Node"]


@dataclass(frozen=True)
class _Column:
    """An output column of a node."""

    expr_id: ExprId
    name: str
    sources: Sources


@dataclass(frozen=True)
class _Output:
    """The output columns of a node; if they are not complete, it may have others."""

    columns: Sequence[_Column]
    is_complete: bool = True

    @cached_property
    def by_id(self) -> dict[ExprId, Sources]:
        found: dict[ExprId, Sources] = {}
        for column in self.columns:
            known = found.setdefault(column.expr_id, column.sources)
            if known != column.sources:
                found[column.expr_id] = None
        return found


_UNKNOWN = _Output([], is_complete=False)


class _Plan:
    """An analyzed plan.

    Args:
        nodes: Its nodes from top to bottom, each before its children, as `toJSON` prints them.
    """

    def __init__(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        self._common: dict[int, _Output] = {}  # the common table expressions, by id
        self.output = self._output(_tree(nodes))

    def _output(self, node: _Node) -> _Output:
        if node.kind in _PASSING:
            return self._output(node.children[0])
        if node.kind in _PROJECTING:
            return _projected(node.fields[_PROJECTING[node.kind]], self._output(node.children[0]))
        known: dict[str, Callable[[_Node], _Output]] = {
            "CTERelationRef": self._reference,
            "Except": lambda node: self._output(node.children[0]),
            "Generate": self._generated,
            "Intersect": lambda node: self._output(node.children[0]),
            "Join": self._joined,
            "OneRowRelation": lambda _: _Output([]),
            "Range": lambda node: _Output([_Column(*found, frozenset()) for found in _listed(node.fields["output"])]),
            "SubqueryAlias": self._named,
            "Union": self._union,
            "Window": self._window,
            "WithCTE": self._with_common,
        }
        return known[node.kind](node) if node.kind in known else _UNKNOWN

    def _named(self, node: _Node) -> _Output:
        name = str(node.fields["identifier"]["name"])
        if not name.startswith(_MARK):
            return self._output(node.children[0])
        schema, table, lake = json.loads(name.removeprefix(_MARK))
        attributes = _attributes(node.children[0])
        return _Output(
            [
                _Column(
                    key, name, frozenset() if name == _HIDDEN else frozenset([SourceColumn(lake, schema, table, name)])
                )
                for key, name in attributes
            ],
            is_complete=bool(attributes),
        )

    def _joined(self, node: _Node) -> _Output:
        left, right = map(self._output, node.children)
        kind = _class(node.fields["joinType"].get("object", ""))
        if kind in _JOINS_OF_LEFT:
            return left
        if kind in _JOINS_OF_BOTH:
            return _Output([*left.columns, *right.columns], left.is_complete and right.is_complete)
        return _UNKNOWN

    def _union(self, node: _Node) -> _Output:
        parts = [self._output(child) for child in node.children]
        widths = {len(part.columns) for part in parts}
        if len(widths) > 1 or not all(part.is_complete for part in parts) or node.fields.get("byName"):
            return _UNKNOWN
        columns = zip(*(part.columns for part in parts), strict=True)
        return _Output([_Column(first.expr_id, first.name, _together([first, *more])) for first, *more in columns])

    def _generated(self, node: _Node) -> _Output:
        child = self._output(node.children[0])
        sources = _sources(node.fields["generator"], child.by_id)
        columns = [_Column(key, name, sources) for key, name in _listed(node.fields["generatorOutput"])]
        return _Output([*child.columns, *columns], child.is_complete and node.fields["unrequiredChildIndex"] == [])

    def _window(self, node: _Node) -> _Output:
        child = self._output(node.children[0])
        columns = _projected(node.fields["windowExpressions"], child)
        return _Output([*child.columns, *columns.columns], columns.is_complete)

    def _with_common(self, node: _Node) -> _Output:
        for index in node.fields["cteDefs"]:
            definition = node.children[index]
            self._common[definition.fields["id"]] = self._output(definition)
        return self._output(node.children[node.fields["plan"]])

    def _reference(self, node: _Node) -> _Output:
        definition = self._common.get(node.fields["cteId"], _UNKNOWN)
        attributes = _listed(node.fields["output"])
        if not definition.is_complete or len(attributes) != len(definition.columns):
            return _UNKNOWN
        pairs = zip(attributes, definition.columns, strict=True)
        return _Output([_Column(key, name, column.sources) for (key, name), column in pairs])


def _tree(nodes: Sequence[Mapping[str, Any]]) -> _Node:
    ready: list[_Node] = []
    for fields in reversed(nodes):
        children = [ready.pop() for _ in range(fields["num-children"])]
        name = str(fields["class"])
        ready.append(_Node(name.removeprefix(_LOGICAL), fields, children))
    (root,) = ready
    return root


def _attributes(node: _Node) -> list[tuple[ExprId, str]]:
    """Return the ids and names of the columns of a node directly below a mark; none if they cannot be told."""
    if node.kind == "Union":
        return _attributes(node.children[0])
    return _listed(node.fields["projectList"] if node.kind == "Project" else node.fields.get("output", []))


def _listed(expressions: Iterable[Sequence[Mapping[str, Any]]]) -> list[tuple[ExprId, str]]:
    return [(_id(first), str(first["name"])) for first, *_ in expressions]


def _projected(expressions: Iterable[Sequence[Mapping[str, Any]]], child: _Output) -> _Output:
    """Return the columns of a list of named expressions."""
    columns = []
    for expression in expressions:
        first, *rest = expression
        if _class(first["class"]) not in ("Alias", "AttributeReference"):
            return _UNKNOWN
        sources = _sources(rest if _class(first["class"]) == "Alias" else expression, child.by_id)
        columns.append(_Column(_id(first), str(first["name"]), sources))
    return _Output(columns)


def _sources(expression: Sequence[Mapping[str, Any]], known: Mapping[ExprId, Sources]) -> Sources:
    """Return what an expression is computed from.

    Args:
        expression: The expression and all below it.
        known: What each column that it can refer to is computed from.
    """
    found: set[SourceColumn] = set()
    for part in expression:
        if any(map(_is_plan, part.values())):
            return None  # a subquery
        if _class(part["class"]) == "AttributeReference":
            sources = known.get(_id(part))
            if sources is None:
                return None
            found |= sources
    return frozenset(found)


def _is_plan(value: Any) -> bool:
    if not isinstance(value, list) or not value or not isinstance(value[0], dict):
        return False
    return ".expressions." not in str(value[0].get("class", ".expressions."))


def _together(columns: Iterable[_Column]) -> Sources:
    parts = [column.sources for column in columns]
    known = [part for part in parts if part is not None]
    return frozenset().union(*known) if len(known) == len(parts) else None


def _id(attribute: Mapping[str, Any]) -> ExprId:
    return attribute["exprId"]["id"], attribute["exprId"]["jvmId"]


def _class(name: str) -> str:
    return name.rpartition(".")[2]
