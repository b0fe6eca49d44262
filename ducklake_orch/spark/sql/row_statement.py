"""Run DELETE, UPDATE and MERGE whose conditions and values Spark evaluates: `RowStatement`.

Spark reads the table with its row ids and computes what becomes of which row; the lake then changes these rows. If
another commit has changed the table meanwhile, the statement runs again.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from ducklake_orch.catalog.metadata import ColumnDef
from ducklake_orch.catalog.verbs import DELETED, ROW_ID, ChangeByRowIdRequest, change_by_row_id
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.quoting import folded
from ducklake_orch.errors import ObjectNotFoundError, SnapshotChangedError, UnsupportedStatementError
from ducklake_orch.results import WriteResult
from ducklake_orch.spark.merge_source_staging import SparkSpool
from ducklake_orch.spark.rows_with_ids import rows_with_ids
from ducklake_orch.spark.spark_quoting import name_sql
from ducklake_orch.spark.sql.clauses import Merge, When, assignments_of, condition_of, merge_of
from ducklake_orch.spark.sql.lake_moment import lake_moment
from ducklake_orch.spark.sql.pushed_conditions import pushed_condition
from ducklake_orch.spark.sql.run_query import context_of, run_query
from ducklake_orch.spark.sql.statement import Node, parse_statement
from ducklake_orch.spark.sql.statement_scope import StatementScope
from ducklake_orch.spark.sql.store_assignment import assigned, assigned_sql
from ducklake_orch.spark.sql.table_lookup import LakeTableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

# Names of frames and columns in the queries that are made of a statement's clauses.
_TARGET, _PAIRS, _CHOSEN = "ducklake_target", "ducklake_pairs", "ducklake_chosen"
_PRESENT, _CLAUSE = "__ducklake_present", "__ducklake_clause"
_JOINS = {(False, False): "INNER", (True, False): "LEFT", (False, True): "RIGHT", (True, True): "FULL OUTER"}
_SIDES = {
    "matched": f"{ROW_ID} IS NOT NULL AND {_PRESENT}",
    "not matched": f"{ROW_ID} IS NULL",
    "by source": f"{_PRESENT} IS NULL",
}
_ATTEMPTS = 5


@dataclass(frozen=True)
class _Table:
    """The table that a statement changes, at one snapshot.

    Attributes:
        alias: Its name in the statement, quoted.
        columns: Its columns.
        fields: Its columns in Spark.
        snapshot: The snapshot.
        where: A condition in DuckDB's SQL which every row meets that DELETE or UPDATE changes; None without one.
    """

    alias: str
    columns: tuple[ColumnDef, ...]
    fields: "list[StructField]"
    snapshot: int
    where: str | None

    def column(self, text: str) -> str:
        """Return the folded name of a column that the statement assigns."""
        node: Any = exp.maybe_parse(text, dialect="spark")
        known = {folded(column.name): column.name for column in self.columns}
        parts = [name_sql(part.name) for part in node.parts] if isinstance(node, exp.Column) else []
        if len(parts) not in (1, 2) or (len(parts) == 2 and folded(parts[0]) != folded(self.alias)):
            raise UnsupportedStatementError(
                f"`sql` cannot assign `{text}`.", remedy="Assign whole columns of the table that is changed."
            )
        if (name := folded(node.name)) not in known:
            raise ObjectNotFoundError(
                f"The table has no column `{node.name}`.", remedy=nearest(node.name, [*known.values()])
            )
        return name


@dataclass(frozen=True)
class RowStatement:
    """A statement that changes rows of one table.

    Attributes:
        scope: What it can name.
        target: The table.
    """

    scope: StatementScope
    target: LakeTableName

    def delete(self) -> WriteResult:
        """Run DELETE."""
        return self._run("delete", self._deleted)

    def update(self) -> WriteResult:
        """Run UPDATE."""
        return self._run("update", self._updated)

    def merge(self) -> WriteResult:
        """Run MERGE."""
        return self._run("merge", self._merged)

    def _run(self, mode: str, rows: "Callable[[_Table], DataFrame]") -> WriteResult:
        if self.scope.args is not None and not isinstance(self.scope.args, Mapping):
            raise UnsupportedStatementError(
                f"`sql` takes no parameters by position in this {mode.upper()}.", remedy="Give them names: `:id`."
            )
        lake, name = self.scope.lake(self.target), self.target.table
        verbs = self.scope.verbs(self.target.lake)
        alone = verbs is lake
        attempts = _ATTEMPTS if alone else 1
        for attempt in range(1, attempts + 1):
            table = self._table(lake)
            frame = rows(table)
            # What a statement does to a row may depend on other rows if it reads tables besides the row.
            where = table.where if len(self.scope.statement.references) == 1 else None
            expected = table.snapshot if alone else None
            request = ChangeByRowIdRequest(name, mode=mode, where=where, expect_snapshot=expected)

            def change(on: Any, frame: Any = frame, request: ChangeByRowIdRequest = request) -> WriteResult:
                return change_by_row_id(on.config, SparkSpool(on.config, frame, name), request)

            try:
                return change(lake) if alone else verbs.run_verb(mode, str(name), change)
            except SnapshotChangedError:
                if attempt == attempts:
                    raise
        raise AssertionError  # the last attempt returns or raises

    def _table(self, lake: Any) -> _Table:
        moment = lake_moment(lake, [self.target.table])
        columns = moment.tables[self.target.table.key].columns
        fields = lake.read(str(self.target.table), self.scope.lookup.spark, snapshot=moment.snapshot).schema.fields
        alias = name_sql(self.scope.statement.tree.this.alias_or_name)
        return _Table(alias, columns, fields, moment.snapshot, self._pushed(alias, columns))

    def _pushed(self, alias: str, columns: tuple[ColumnDef, ...]) -> str | None:
        statement = parse_statement(f"SELECT 1 FROM {self._rows(alias)}", self.scope.lookup.frames)
        context = context_of(self.scope.lookup.spark, statement, self.scope.args)
        return pushed_condition(statement.references[0], columns, context)

    # --- DELETE and UPDATE ---------------------------------------------------------------------------------------

    def _deleted(self, table: _Table) -> "DataFrame":
        return self._changed(table, ["true"])

    def _updated(self, table: _Table) -> "DataFrame":
        values = _by_column(table, assignments_of(self.scope.statement.text))
        expressions = [
            values.get(folded(field.name), f"{table.alias}.{name_sql(field.name)}") for field in table.fields
        ]
        frame = self._changed(table, ["false", *expressions])
        return assigned(frame, [*frame.schema.fields[:2], *table.fields], str(self.target.table))

    def _changed(self, table: _Table, values: list[str]) -> "DataFrame":
        """Return the rows that meet the condition: their ids, whether they are deleted, and values."""
        names = [DELETED, *(f"ducklake_{number}" for number in range(len(values) - 1))]
        columns = ", ".join(f"{value} AS {name}" for value, name in zip(values, names, strict=True))
        text = f"SELECT {table.alias}.{ROW_ID} AS {ROW_ID}, {columns} FROM {self._rows(table.alias)}"
        return self._query(text, {_TARGET: self._target(table)})

    def _rows(self, alias: str) -> str:
        """Return the rows that DELETE or UPDATE changes, as they stand after FROM."""
        condition = condition_of(self.scope.statement.text)
        return f"{_TARGET} AS {alias}{f' WHERE {condition}' if condition else ''}"

    def _target(self, table: _Table) -> "DataFrame":
        """Return the table with its row ids; rows that DELETE or UPDATE does not change may be missing."""
        lake, spark = self.scope.lake(self.target), self.scope.lookup.spark
        return rows_with_ids(lake, spark, self.target.table, table.snapshot, ROW_ID, table.where)

    # --- MERGE ---------------------------------------------------------------------------------------------------

    def _merged(self, table: _Table) -> "DataFrame":
        merge = merge_of(self.scope.statement.text)
        source = _alias_of_source(self.scope.statement.tree)
        pairs = self._pairs(table, merge, source)
        cases = [
            f"WHEN {_SIDES[when.side]}{f' AND ({when.condition})' if when.condition else ''} THEN {number}"
            for number, when in enumerate(merge.whens)
        ]
        chosen = self._query(f"SELECT *, CASE {' '.join(cases)} END AS {_CLAUSE} FROM {_PAIRS}", {_PAIRS: pairs})
        computed = {
            number: _expressions(table, when, source)
            for number, when in enumerate(merge.whens)
            if when.action != "delete"
        }
        parts = [
            f", CASE WHEN {_CLAUSE} = {number} THEN named_struct("
            + ", ".join(f"'c{n}', {value}" for n, value in enumerate(values))
            + f") END AS u{number}"
            for number, values in computed.items()
        ]
        text = f"SELECT {ROW_ID}, {_CLAUSE}{''.join(parts)} FROM {_CHOSEN} WHERE {_CLAUSE} IS NOT NULL"
        frame = self._query(text, {_CHOSEN: chosen})
        deleting = [str(number) for number, when in enumerate(merge.whens) if when.action == "delete"]
        columns = [ROW_ID, f"{_CLAUSE} IN ({', '.join(deleting) or '-1'}) AS {DELETED}"]
        for n, field in enumerate(table.fields if computed else ()):
            values = []
            for number in computed:
                found = frame.schema[f"u{number}"].dataType[f"c{n}"]  # type: ignore[index]
                sql = assigned_sql(f"u{number}.c{n}", found, field, str(self.target.table))
                values.append(f"WHEN {number} THEN {sql}")
            columns.append(f"CASE {_CLAUSE} {' '.join(values)} END AS {name_sql(field.name)}")
        return frame.selectExpr(*columns)

    def _pairs(self, table: _Table, merge: Merge, source: str) -> "DataFrame":
        """Return pairs of rows of the table and the source, each row as a struct with the name of its table.

        Columns that only one of the two has also have their own names.
        """
        of_source = self._query(f"SELECT * FROM {merge.source}", {}).columns
        sides = [(table.alias, [field.name for field in table.fields]), (source, of_source)]
        count = Counter(folded(name) for _, names in sides for name in names)
        taken = {folded(alias) for alias, _ in sides}
        alone = [
            f", {alias}.{name_sql(name)} AS {name_sql(name)}"
            for alias, names in sides
            for name in names
            if count[folded(name)] == 1 and folded(name_sql(name)) not in taken
        ]
        kinds = {when.side for when in merge.whens}
        join = _JOINS["not matched" in kinds, "by source" in kinds]
        marked = f"(SELECT *, true AS {_PRESENT} FROM {merge.source}) AS {source}"
        text = (
            f"SELECT struct({table.alias}.*) AS {table.alias}, struct({source}.*) AS {source}{''.join(alone)},"
            f" {table.alias}.{ROW_ID} AS {ROW_ID}, {source}.{_PRESENT} AS {_PRESENT}"
            f" FROM {marked} {join} JOIN {_TARGET} AS {table.alias} ON {merge.on}"
        )
        return self._query(text, {_TARGET: self._target(table)})

    def _query(self, text: str, frames: "dict[str, DataFrame]") -> "DataFrame":
        lookup = replace(self.scope.lookup, frames={**self.scope.lookup.frames, **frames}, _moments={})
        return run_query(lookup, parse_statement(text, self.scope.lookup.frames), self.scope.args)


def _by_column(table: _Table, values: Mapping[str, str]) -> dict[str, str]:
    """Return expressions by the folded names of the columns that they are assigned to."""
    found: dict[str, str] = {}
    for text, value in values.items():
        name = table.column(text)
        if name in found or value.strip().upper() == "DEFAULT":
            why = "is assigned twice" if name in found else "is assigned DEFAULT"
            raise UnsupportedStatementError(f"Column `{name}` {why}.", remedy="Give it one value.")
        found[name] = value
    return found


def _expressions(table: _Table, when: When, source: str) -> list[str]:
    """Return the values of all columns of the table after a clause."""
    values = _by_column(table, when.values)
    if not when.values:  # UPDATE SET * and INSERT *
        return [f"{source}.{name_sql(field.name)}" for field in table.fields]
    if when.action == "update":
        return [values.get(folded(field.name), f"{table.alias}.{name_sql(field.name)}") for field in table.fields]
    for column in table.columns:
        if column.default is not None and folded(column.name) not in values:
            raise UnsupportedStatementError(
                f"INSERT leaves out column `{column.name}`, which has a default.", remedy="Name it, with its value."
            )
    return [values.get(folded(field.name), "NULL") for field in table.fields]


def _alias_of_source(tree: Node) -> str:
    if not (name := tree.args["using"].alias_or_name):
        raise UnsupportedStatementError(
            "The source of MERGE has no name.", remedy="Write `USING (SELECT …) AS source`."
        )
    return name_sql(name)
