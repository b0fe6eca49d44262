"""Run statements of Spark's SQL that change rows, by the verbs of a lake: INSERT, DELETE, UPDATE, MERGE, TRUNCATE."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from ducklake_orch.catalog.metadata import ColumnDef
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.quoting import folded, identifier
from ducklake_orch.errors import ObjectNotFoundError, UnsupportedStatementError
from ducklake_orch.results import WriteResult
from ducklake_orch.spark.spark_quoting import name_sql
from ducklake_orch.spark.sql.pushed_conditions import PushContext, exact_condition, exact_value
from ducklake_orch.spark.sql.row_statement import RowStatement
from ducklake_orch.spark.sql.run_query import context_of
from ducklake_orch.spark.sql.statement import Node
from ducklake_orch.spark.sql.statement_scope import StatementScope
from ducklake_orch.spark.sql.store_assignment import assigned
from ducklake_orch.spark.sql.table_lookup import LakeTableName

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

# Parts of INSERT, by their names in the parse tree, that are refused.
_NOT_IN_INSERT = ("with_", "with", "conflict", "returning", "where", "exists")


@dataclass(frozen=True)
class WriteStatement:
    """A statement that changes rows, with what it can name."""

    scope: StatementScope

    def run(self) -> WriteResult:
        """Run the statement."""
        match self.scope.statement.tree:
            case exp.Insert() as insert:
                return self._insert(insert)
            case exp.Delete() as delete:
                return self._delete(delete)
            case exp.Update() as update:
                return self._update(update)
            case exp.Merge() as merge:
                return self._merge(merge)
            case exp.TruncateTable() as truncate:
                return self._truncate(truncate)
            case other:
                raise UnsupportedStatementError(
                    f"`sql` does not run {other.key.upper()}.",
                    remedy="Run the statement in DuckDB's SQL, by `lake.execute`.",
                )

    def _truncate(self, truncate: exp.TruncateTable) -> WriteResult:
        if truncate.args.get("partition") or len(truncate.expressions) != 1:
            raise UnsupportedStatementError(
                "`sql` runs TRUNCATE TABLE of one whole table only.", remedy='Call `lake.delete("table", "condition")`.'
            )
        target = self.scope.existing(truncate.expressions[0])
        table, lake = str(target.table), self.scope.lake(target)
        return self.scope.verbs(target.lake).write(lake.read(table, where="false"), table, mode="overwrite")  # type: ignore[no-any-return]

    # --- INSERT --------------------------------------------------------------------------------------------------

    def _insert(self, insert: exp.Insert) -> WriteResult:
        into = insert.this
        names = [column.name for column in into.expressions] if isinstance(into, exp.Schema) else []
        for part in _NOT_IN_INSERT:
            if insert.args.get(part):
                raise UnsupportedStatementError(
                    f"`sql` does not run INSERT with {part.strip('_').upper().replace('_', ' ')}.",
                    remedy="Write the query after the name of the table, and its columns in their order.",
                )
        target = self.scope.existing(into)
        frame = self.scope.query()
        verbs, table = self.scope.verbs(target.lake), str(target.table)
        columns = self._columns(target)
        fixed = self._fixed(insert, columns)
        if insert.args.get("by_name"):
            names = frame.columns
            _refuse_unknown(names, columns, target)
        wanted = [columns[folded(name)] for name in names] if names else [*columns.values()]
        frame = assigned(frame, [field for field in wanted if folded(field.name) not in fixed], table)
        for name, value in fixed.items():
            field = columns[name]
            frame = frame.selectExpr("*", f"CAST({value} AS {field.dataType.simpleString()}) AS {name_sql(field.name)}")
        if not insert.args.get("overwrite"):
            return verbs.write(frame, table, mode="append")  # type: ignore[no-any-return]
        if fixed:
            return verbs.write(frame, table, mode="replace_where", where=self._where(insert, target))  # type: ignore[no-any-return]
        return verbs.write(frame, table, **self._overwrite(target))  # type: ignore[no-any-return]

    def _where(self, insert: exp.Insert, target: LakeTableName) -> str:
        """Return the rows of a PARTITION clause, as a condition in DuckDB's SQL."""
        columns = {folded(column.name): column for column in self.scope.columns(target)}
        context = context_of(self.scope.lookup.spark, self.scope.statement, self.scope.args)
        conditions = []
        for part in _partition(insert):
            column = columns[folded(part.this.name)]
            if (value := exact_value(part.expression, column, context)) is None:
                raise UnsupportedStatementError(
                    f"`{part.sql('spark')}` is not a constant of the column's type.",
                    remedy='Call `lake.write(…, mode="replace_where", where="…")`.',
                )
            conditions.append(f"{identifier(column.name)} {'IS NULL' if value == 'NULL' else f'= {value}'}")
        return " AND ".join(conditions)

    def _overwrite(self, target: LakeTableName) -> dict[str, Any]:
        how = str(self.scope.lookup.spark.conf.get("spark.sql.sources.partitionOverwriteMode", "static"))
        mode = "overwrite_partitions" if how.lower() == "dynamic" else "overwrite"
        # A query that reads what it replaces must not replace rows that it has not read.
        lake = self.scope.lake(target)
        read = [
            moment for moment in self.scope.lookup.latest() if moment.lake is lake and target.table.key in moment.tables
        ]
        is_guarded = read and self.scope.verbs(target.lake) is lake
        return {"mode": mode, "expect_snapshot": read[0].snapshot} if is_guarded else {"mode": mode}

    def _fixed(self, insert: exp.Insert, columns: "Mapping[str, StructField]") -> dict[str, str]:
        """Return the columns of a PARTITION clause with their constants."""
        found: dict[str, str] = {}
        for part in _partition(insert):
            if not isinstance(part, exp.EQ) or folded(part.this.name) not in columns:
                raise UnsupportedStatementError(
                    "`sql` runs INSERT with constants in PARTITION only.", remedy="Select the other columns."
                )
            found[folded(part.this.name)] = part.expression.sql("spark")
        return found

    def _columns(self, target: LakeTableName) -> "dict[str, StructField]":
        return {folded(field.name): field for field in self.scope.fields(target)}

    # --- DELETE and UPDATE ---------------------------------------------------------------------------------------

    def _delete(self, delete: exp.Delete) -> WriteResult:
        target = self.scope.existing(delete.this)
        changed = self._changed(target, delete)
        if (condition := changed.condition(delete)) is None:
            return self._by_spark(target).delete()
        return self.scope.verbs(target.lake).delete(str(target.table), condition)  # type: ignore[no-any-return]

    def _update(self, update: exp.Update) -> WriteResult:
        target = self.scope.existing(update.this)
        changed = self._changed(target, update)
        values, condition = changed.values(update), changed.condition(update)
        if values is None or condition is None:
            return self._by_spark(target).update()
        return self.scope.verbs(target.lake).update(str(target.table), values, condition)  # type: ignore[no-any-return]

    def _merge(self, merge: exp.Merge) -> WriteResult:
        return self._by_spark(self.scope.existing(merge.this)).merge()

    def _by_spark(self, target: LakeTableName) -> RowStatement:
        return RowStatement(self.scope, target)

    def _changed(self, target: LakeTableName, change: exp.Delete | exp.Update) -> "_Changed":
        context = context_of(self.scope.lookup.spark, self.scope.statement, self.scope.args)
        return _Changed(change.this.alias_or_name, self.scope.columns(target), context)


@dataclass(frozen=True)
class _Changed:
    """A table whose rows are changed. What means the same in DuckDB's SQL, DuckDB evaluates where the rows are.

    Attributes:
        alias: The name of the table in the statement.
        columns: Its columns.
        context: What conditions mean besides their text.
    """

    alias: str
    columns: Sequence[ColumnDef]
    context: PushContext

    def condition(self, change: Node) -> str | None:
        """Return the condition of the rows in DuckDB's SQL; None if only Spark can evaluate it."""
        for part in ("using", "returning", "order", "limit", "from_", "from", "with_", "with"):
            if change.args.get(part):
                raise UnsupportedStatementError("`sql` changes one table by a condition only.", remedy="Write MERGE.")
        if (where := change.args.get("where")) is None:
            return "true"
        return exact_condition(where.this, self.alias, self.columns, self.context)

    def values(self, update: exp.Update) -> dict[str, str] | None:
        """Return the values of assignments in DuckDB's SQL; None if only Spark can evaluate one."""
        columns, found = {folded(column.name): column for column in self.columns}, {}
        for part in update.expressions:
            column = columns.get(folded(part.this.name))
            value = exact_value(part.expression, column, self.context) if column is not None else None
            if value is None or not isinstance(part.this, exp.Column) or part.this.name in found:
                return None
            found[part.this.name] = value
        return found


def _refuse_unknown(names: Sequence[str], columns: "Mapping[str, StructField]", target: LakeTableName) -> None:
    """Refuse columns of a query that the table of INSERT BY NAME lacks."""
    for name in names:
        if folded(name) not in columns:
            known = [field.name for field in columns.values()]
            raise ObjectNotFoundError(f"`{target.table}` has no column `{name}`.", remedy=nearest(name, known))


def _partition(insert: exp.Insert) -> "list[Node]":
    """Return the parts of a PARTITION clause."""
    table = insert.this.this if isinstance(insert.this, exp.Schema) else insert.this
    return partition.expressions if (partition := table.args.get("partition")) else []
