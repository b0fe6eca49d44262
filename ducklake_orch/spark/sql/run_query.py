"""Run a query in Spark's SQL on tables of lakes: `run_query`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from ducklake_orch.catalog.feed import FeedRequest
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.errors import StatementError
from ducklake_orch.spark.feed_frame import changes_frame
from ducklake_orch.spark.spark_quoting import name_sql
from ducklake_orch.spark.sql.lake_moment import LakeMoment, latest_snapshot
from ducklake_orch.spark.sql.metadata_frames import metadata_frame
from ducklake_orch.spark.sql.pushed_conditions import PushContext, pushed_condition
from ducklake_orch.spark.sql.statement import Node, Reference, Statement
from ducklake_orch.spark.sql.table_lookup import LakeTableName, TableLookup, When

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Zones in which a time without a zone is the same in DuckDB.
_UTC = ("UTC", "Etc/UTC", "Z", "GMT", "+00:00")
Args = Mapping[str, Any] | Sequence[Any] | None


@dataclass(frozen=True)
class _Read:
    """What one reference reads; equal reads share a DataFrame."""

    table: LakeTableName
    when: When
    where: str | None


@dataclass
class _Query:
    lookup: TableLookup
    statement: Statement
    args: Args
    whens: Mapping[int, tuple[Reference, When]]
    context: PushContext
    frames: dict[str, Any] = field(default_factory=dict)
    names: dict[Any, str] = field(default_factory=dict)

    def name(self, key: Any, make: "Callable[[], DataFrame]") -> str:
        """Return the placeholder of a DataFrame, which is made at its first use."""
        if key not in self.names:
            name = f"ducklake_{len(self.names)}"
            while name in self.frames:
                name += "_"
            self.frames[name], self.names[key] = make(), f"{{{name}}}"
        return self.names[key]


def run_query(lookup: TableLookup, statement: Statement, args: Args) -> "DataFrame":
    """Return the result of a query as a DataFrame, whose rows are read when it runs.

    All references to a lake see one snapshot. The tables are read as of the latest; if another snapshot is committed
    meanwhile, they are read again as of the one that was the latest when the statement began.

    Args:
        lookup: The lakes and frames that the statement can name.
        statement: The query.
        args: The parameters of the query.
    """
    spark = lookup.spark
    whens = {reference.start: (reference, _when(spark, reference, args)) for reference in statement.references}
    lookup.load(whens)
    context = context_of(spark, statement, args)
    query = _Query(lookup, statement, args, whens, context)
    frame = _run(query, pinned=False)
    if any(latest_snapshot(moment.lake) != moment.snapshot for moment in lookup.latest()):
        frame = _run(_Query(lookup, statement, args, whens, context), pinned=True)
    return frame


def context_of(spark: "SparkSession", statement: Statement, args: Args) -> PushContext:
    """Return what the conditions of a statement mean besides their text."""
    return PushContext(
        args if isinstance(args, Mapping) else {},
        is_utc=spark.conf.get("spark.sql.session.timeZone") in _UTC,
        has_escapes="\\" in statement.text,
    )


def _run(query: _Query, *, pinned: bool) -> "DataFrame":
    lookup, statement = query.lookup, query.statement
    query.frames.update(lookup.frames)
    edits = sorted(_edits(query, pinned))
    pieces, at = [], 0
    for start, end, text in edits:
        pieces += [_escaped(statement, statement.text[at:start]), text]
        at = end
    pieces.append(_escaped(statement, statement.text[at:]))
    text = "".join(pieces)
    args = _spark_args(query.args)
    if not query.frames:
        return lookup.spark.sql(statement.text, args)
    return lookup.spark.sql(text, args, **query.frames)


def _spark_args(args: Args) -> dict[str, Any] | list[Any] | None:
    return dict(args) if isinstance(args, Mapping) else None if args is None else list(args)


def _escaped(statement: Statement, text: str) -> str:
    """Return text of the user in which Spark finds no placeholders but those that the user wrote."""
    return text if statement.has_placeholders else text.replace("{", "{{").replace("}", "}}")


# --- names -----------------------------------------------------------------------------------------------------------


def _edits(query: _Query, pinned: bool) -> Iterator[tuple[int, int, str]]:
    """Return the parts of the statement to replace, by their positions, with what replaces them."""
    unaliased = []
    for reference, when in query.whens.values():
        found = query.lookup.find(reference, when)
        if found is None:
            continue
        name = f"{{{found}}}" if isinstance(found, str) else _frame_name(query, reference, found, when, pinned)
        yield reference.start, reference.end, name
        if reference.alias is None:
            alias = _free_alias(query, reference)
            yield reference.alias_at, reference.alias_at, f" AS {name_sql(alias)}"
            unaliased.append((reference, alias))
    yield from _column_edits(query.statement, unaliased)


def _free_alias(query: _Query, reference: Reference) -> str:
    """Return the name under which columns can name an unaliased table: its last part, if no other table has it."""
    last = "changes" if reference.arguments is not None else reference.parts[-1]
    select = reference.node.parent_select
    others = [
        other
        for other in query.statement.references
        if other.node.parent_select is select and (other.alias or other.parts[-1]).lower() == last.lower()
    ]
    return last if len(others) <= 1 or len(reference.parts) == 1 else reference.name


def _column_edits(statement: Statement, unaliased: Sequence[tuple[Reference, str]]) -> Iterator[tuple[int, int, str]]:
    """Replace the qualifiers of columns that name a table with its schema: `sales.orders.id`."""
    for column in statement.tree.find_all(exp.Column):
        parts = column.parts[:-1]
        if len(parts) < 2 or parts[0].meta.get("start") is None:
            continue
        names = [part.name.lower() for part in parts]
        for reference, alias in unaliased:
            own = [part.lower() for part in reference.parts]
            if own[-len(names) :] == names and _is_within(column, reference.node.parent_select):
                yield parts[0].meta["start"], parts[-1].meta["end"] + 1, name_sql(alias)
                break


def _is_within(node: Node, select: Node | None) -> bool:
    while node.parent is not None and node is not select:
        node = node.parent
    return node is select or select is None


# --- frames ----------------------------------------------------------------------------------------------------------


def _frame_name(query: _Query, reference: Reference, table: LakeTableName, when: When, pinned: bool) -> str:
    lookup = query.lookup
    moment = lookup.moment(table.lake, when)
    if reference.arguments is not None:
        request = _feed_request(moment, table.table, reference.arguments)
        return query.name(request, lambda: changes_frame(moment.lake, lookup.spark, request))
    kind = table.kind
    if kind is not None:
        return query.name((table, when), lambda: metadata_frame(lookup.spark, moment, table.table, kind))
    where = None
    if table.table.key in moment.tables and "|>" not in query.statement.text:
        where = pushed_condition(reference, moment.tables[table.table.key].columns, query.context)
    return query.name(_Read(table, when, where), lambda: _read(lookup.spark, moment, table.table, where, pinned))


def _read(spark: "SparkSession", moment: LakeMoment, table: TableName, where: str | None, pinned: bool) -> "DataFrame":
    # A read of the latest snapshot can use the DataFrame that the session keeps.
    snapshot = moment.snapshot if pinned or moment.is_past else None
    return moment.lake.read(str(table), spark, where=where, snapshot=snapshot)  # type: ignore[attr-defined,no-any-return]


def _feed_request(moment: LakeMoment, table: TableName, arguments: Sequence[Node]) -> FeedRequest:
    ends = [_snapshot_argument(argument) for argument in arguments[1:]]
    if len(ends) > 2:
        raise StatementError(
            "`changes` takes a table, and the first and the last snapshot.", remedy="Write `changes('orders', 3, 7)`."
        )
    first, last = (*ends, None, None)[:2]
    return FeedRequest(
        table=table,
        from_snapshot=first,
        to_snapshot=moment.snapshot if last is None else last,
        from_time=None,
        to_time=None,
        columns=None,
    )


def _snapshot_argument(argument: Node) -> int | None:
    if isinstance(argument, exp.Null):
        return None
    if isinstance(argument, exp.Literal) and argument.is_int:
        return int(argument.this)
    raise StatementError(
        f"`{argument.sql('spark')}` is not a snapshot.", remedy="Give `changes` the ids of the first and last snapshot."
    )


# --- time travel -----------------------------------------------------------------------------------------------------


def _when(spark: "SparkSession", reference: Reference, args: Args) -> When:
    travel = reference.travel
    if travel is None:
        return None
    if "?" in travel.expression:
        raise StatementError(
            f"`{travel.expression}` is a parameter by position, which the clause AS OF cannot have.",
            remedy="Give it a name: `VERSION AS OF :snapshot`.",
        )
    is_time, value = travel.kind == "time", travel.expression
    if is_time:
        value = f"unix_micros(try_cast({value} AS TIMESTAMP))"
    named = dict(args) if isinstance(args, Mapping) else None
    found = spark.sql(f"SELECT {value} AS value", named).collect()[0].value
    if is_time and found is not None:
        return datetime.fromtimestamp(found / 1_000_000, UTC)
    if not is_time and isinstance(found, int | str):
        return found
    what = "a time" if is_time else "the id or the tag of a snapshot"
    raise StatementError(f"`{travel.expression}` is not {what}.", remedy="Write an id, a tag or a time.")
