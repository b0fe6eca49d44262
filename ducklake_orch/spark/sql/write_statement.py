"""Run statements of Spark's SQL that write, by the verbs of a lake: INSERT, UPDATE, CREATE TABLE … AS and so on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import TokenType, exp

from ducklake_orch.catalog.metadata import ColumnDef
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.quoting import folded, identifier
from ducklake_orch.errors import ObjectNotFoundError, UnsupportedStatementError
from ducklake_orch.results import WriteResult
from ducklake_orch.spark.spark_quoting import name_sql
from ducklake_orch.spark.sql.clauses import columns_of
from ducklake_orch.spark.sql.lake_moment import lake_moment
from ducklake_orch.spark.sql.pushed_conditions import PushContext, exact_condition, exact_value
from ducklake_orch.spark.sql.row_statement import RowStatement
from ducklake_orch.spark.sql.run_query import Args, context_of, run_query
from ducklake_orch.spark.sql.statement import Node, Statement, parse_statement, tokens_of
from ducklake_orch.spark.sql.store_assignment import assigned
from ducklake_orch.spark.sql.table_lookup import LakeTableName, TableLookup

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

RESULT = (
    "table STRING, mode STRING, snapshot_id BIGINT, previous_snapshot_id BIGINT, rows_written BIGINT,"
    " rows_removed BIGINT, files_added BIGINT, files_removed BIGINT, bytes_written BIGINT, replayed BOOLEAN"
)
_FIELDS = [field.split()[0] for field in RESULT.split(", ")]
# Parts of INSERT, by their names in the parse tree, that are refused.
_NOT_IN_INSERT = ("with_", "with", "conflict", "returning", "where", "exists")
# Partition transforms of Spark's SQL whose names in DuckLake are others.
_TRANSFORMS = {"years": "year", "months": "month", "days": "day", "hours": "hour"}
_QUERY = (TokenType.SELECT, TokenType.WITH, TokenType.VALUES, TokenType.FROM)


@dataclass(frozen=True)
class WriteStatement:
    """A statement that writes, and what it needs.

    Attributes:
        lookup: The lakes and frames that it can name.
        statement: The statement.
        args: Its parameters.
        verbs: Returns what has the verbs of a lake: the lake itself, or a transaction.
    """

    lookup: TableLookup
    statement: Statement
    args: Args
    verbs: "Callable[[str], Any]"

    def run(self) -> "DataFrame":
        """Run the statement, and return its result as one row; DDL has none."""
        result: WriteResult | None
        match self.statement.tree:
            case exp.Insert() as insert:
                result = self._insert(insert)
            case exp.Create() as create:
                result = self._create(create)
            case exp.Delete() as delete:
                result = self._delete(delete)
            case exp.Update() as update:
                result = self._update(update)
            case exp.Merge() as merge:
                result = self._merge(merge)
            case exp.TruncateTable() as truncate:
                result = self._truncate(truncate)
            case exp.Drop() as drop:
                result = None
                self._drop(drop)
            case other:
                raise UnsupportedStatementError(
                    f"`sql` does not run {other.key.upper()}.",
                    remedy="Run the statement in DuckDB's SQL, by `lake.execute`.",
                )
        rows = [] if result is None else [{name: getattr(result, name) for name in _FIELDS}]
        return self.lookup.spark.createDataFrame(rows, RESULT)

    def _truncate(self, truncate: exp.TruncateTable) -> WriteResult:
        if truncate.args.get("partition") or len(truncate.expressions) != 1:
            raise UnsupportedStatementError(
                "`sql` runs TRUNCATE TABLE of one whole table only.", remedy='Call `lake.delete("table", "condition")`.'
            )
        target = self._existing(truncate.expressions[0])
        table, lake = str(target.table), self._lake(target)
        return self.verbs(target.lake).write(lake.read(table, where="false"), table, mode="overwrite")  # type: ignore[no-any-return]

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
        target = self._existing(into)
        frame = self._source()
        verbs, table = self.verbs(target.lake), str(target.table)
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
        columns = {folded(column.name): column for column in self._definition(target)}
        context = context_of(self.lookup.spark, self.statement, self.args)
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
        how = str(self.lookup.spark.conf.get("spark.sql.sources.partitionOverwriteMode", "static"))
        mode = "overwrite_partitions" if how.lower() == "dynamic" else "overwrite"
        # A query that reads what it replaces must not replace rows that it has not read.
        lake = self._lake(target)
        read = [moment for moment in self.lookup.latest() if moment.lake is lake and target.table.key in moment.tables]
        is_guarded = read and self.verbs(target.lake) is lake
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
        fields = self._lake(target).read(str(target.table), self.lookup.spark).schema.fields
        return {folded(field.name): field for field in fields}

    # --- DELETE and UPDATE ---------------------------------------------------------------------------------------

    def _delete(self, delete: exp.Delete) -> WriteResult:
        target = self._existing(delete.this)
        changed = self._changed(target, delete)
        if (condition := changed.condition(delete)) is None:
            return self._by_spark(target).delete()
        return self.verbs(target.lake).delete(str(target.table), condition)  # type: ignore[no-any-return]

    def _update(self, update: exp.Update) -> WriteResult:
        target = self._existing(update.this)
        changed = self._changed(target, update)
        values, condition = changed.values(update), changed.condition(update)
        if values is None or condition is None:
            return self._by_spark(target).update()
        return self.verbs(target.lake).update(str(target.table), values, condition)  # type: ignore[no-any-return]

    def _merge(self, merge: exp.Merge) -> WriteResult:
        return self._by_spark(self._existing(merge.this)).merge()

    def _by_spark(self, target: LakeTableName) -> RowStatement:
        return RowStatement(self.lookup, self.statement, self.args, target, self.verbs(target.lake))

    def _changed(self, target: LakeTableName, change: exp.Delete | exp.Update) -> "_Changed":
        context = context_of(self.lookup.spark, self.statement, self.args)
        return _Changed(change.this.alias_or_name, self._definition(target), context)

    # --- CREATE and DROP -----------------------------------------------------------------------------------------

    def _drop(self, drop: exp.Drop) -> None:
        if drop.args.get("kind") != "TABLE" or any(map(drop.args.get, ("cascade", "purge", "temporary"))):
            raise UnsupportedStatementError(
                "`sql` drops tables only.", remedy="Run the statement in DuckDB's SQL, by `lake.execute`."
            )
        target = self._named(drop.find(exp.Table))
        lake, table = self._lake(target), str(target.table)
        if self.lookup.prepare is not None:
            self.lookup.prepare(target.table)
        if lake.exists(table) or not drop.args.get("exists"):
            self.verbs(target.lake).drop_table(table)

    def _create(self, create: exp.Create) -> WriteResult | None:
        if create.args.get("kind") != "TABLE" or create.args.get("replace"):
            raise UnsupportedStatementError(
                "`sql` creates new tables only.", remedy='Call `lake.create_table("table", schema)`.'
            )
        target, exists = self._named(create.this), bool(create.args.get("exists"))
        verbs, table = self.verbs(target.lake), str(target.table)
        layout = self._layout(create)
        if create.expression is not None and "comment" not in layout:
            return verbs.write(self._source(), table, mode="ignore" if exists else "error", **layout)  # type: ignore[no-any-return]
        if create.expression is not None or not isinstance(create.this, exp.Schema):
            raise UnsupportedStatementError(
                "`sql` creates tables from columns, or from a query without a comment.",
                remedy='Call `lake.create_table("table", schema, comment="…")`, and INSERT the rows.',
            )
        columns = columns_of(self.statement.text, self.statement.references[0].end)
        schema = self.lookup.spark.createDataFrame([], columns).schema
        verbs.create_table(table, schema, if_not_exists=exists, **layout)
        return None

    def _layout(self, create: exp.Create) -> dict[str, Any]:
        """Return the partition keys and the comment of a new table."""
        properties = create.args.get("properties")
        found: dict[str, Any] = {}
        for part in properties.expressions if properties is not None else ():
            if isinstance(part, exp.PartitionedByProperty) and not part.find(exp.ColumnDef):
                found["partition_by"] = [_transform(key) for key in part.this.expressions]
            elif isinstance(part, exp.SchemaCommentProperty):
                found["comment"] = part.this.name
            elif not (isinstance(part, exp.FileFormatProperty) and str(part.sql("spark")).lower().endswith("ducklake")):
                raise UnsupportedStatementError(
                    f"`sql` does not run CREATE TABLE with `{part.sql('spark')}`.",
                    remedy='Call `lake.create_table("table", schema)`, which takes options and a comment.',
                )
        return found

    # --- parts ---------------------------------------------------------------------------------------------------

    def _source(self) -> "DataFrame":
        """Return the rows of the query within the statement."""
        text = self.statement.text
        query = parse_statement(text[_start_of_query(text) :], self.lookup.frames)
        return run_query(self.lookup, query, self.args)

    def _named(self, node: Node | None) -> LakeTableName:
        """Return the table that the statement writes, whether it exists or not."""
        table = node.this if isinstance(node, exp.Schema) else node
        if not isinstance(table, exp.Table):
            raise UnsupportedStatementError("The statement writes no table.", remedy="Name a table of the lake.")
        parts = tuple(part.name for part in table.parts)
        if (found := next(self.lookup.tables(parts), None)) is None:
            raise ObjectNotFoundError(f"There is no lake `{parts[0]}`.", remedy="Name it in `lakes`.")
        return found

    def _existing(self, node: Node) -> LakeTableName:
        found = self._named(node)
        if self.lookup.prepare is not None:
            self.lookup.prepare(found.table)
        self._lake(found).table(str(found.table)).schema()  # the error names the nearest table
        return found

    def _definition(self, name: LakeTableName) -> tuple[ColumnDef, ...]:
        """Return the columns of a table in the lake."""
        return lake_moment(self._lake(name), [name.table]).tables[name.table.key].columns

    def _lake(self, name: LakeTableName) -> Any:
        return self.lookup.lakes[name.lake]


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


def _transform(key: Node) -> str:
    text = key.sql("spark")
    name, separator, rest = text.partition("(")
    return f"{_TRANSFORMS.get(name.lower(), name.lower())}({rest}" if separator else text.replace("`", "")


def _start_of_query(text: str) -> int:
    """Return where the query of an INSERT or CREATE starts: the first word of one that is not in parentheses."""
    depth = 0
    tokens = tokens_of(text)
    for index, token in enumerate(tokens):
        if token.token_type is TokenType.L_PAREN:
            if depth == 0 and index + 1 < len(tokens) and tokens[index + 1].token_type in _QUERY:
                return token.start
            depth += 1
        elif token.token_type is TokenType.R_PAREN:
            depth -= 1
        elif depth == 0 and token.token_type in _QUERY:
            return token.start
    raise UnsupportedStatementError("The statement has no query.", remedy="Write `… SELECT …` or `… VALUES …`.")
