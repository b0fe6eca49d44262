"""Run statements of Spark's SQL that define tables, by the verbs of a lake: CREATE, ALTER, COMMENT, DROP."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from ducklake_orch.catalog.parquet import key_names
from ducklake_orch.engine.quoting import folded, identifier
from ducklake_orch.errors import ConfigError, UnsupportedStatementError
from ducklake_orch.results import WriteResult
from ducklake_orch.spark.sql.clauses import (
    AlteredLayout,
    DroppedColumns,
    added_columns_of,
    altered_layout_of,
    columns_of,
    dropped_columns_of,
)
from ducklake_orch.spark.sql.statement import Node, parsed
from ducklake_orch.spark.sql.statement_scope import StatementScope
from ducklake_orch.spark.sql.store_assignment import assigned
from ducklake_orch.spark.sql.table_lookup import LakeTableName

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Partition transforms of Spark's SQL whose names in DuckLake are others.
_TRANSFORMS = {"years": "year", "months": "month", "days": "day", "hours": "hour"}
# The nodes of a constant default. sqlglot counts a cast as a function, too.
_CONSTANT = (exp.Literal, exp.Neg, exp.Boolean, exp.Null, exp.Cast)
_SCHEMAS = ("SCHEMA", "DATABASE")


@dataclass(frozen=True)
class DdlStatement:
    """A statement that defines tables, with what it can name."""

    scope: StatementScope

    def run(self) -> WriteResult | None:
        """Run the statement; return the result of the verb, if it has one."""
        statement = self.scope.statement
        if (dropped := dropped_columns_of(statement.text)) is not None:
            return self._drop_columns(dropped)
        match statement.tree:
            case exp.Create() | exp.Drop() as schema if schema.args.get("kind") in _SCHEMAS:
                self._schema(schema)
                return None
            case exp.Create() as create:
                return self._create(create)
            case exp.Drop() as drop:
                self._drop(drop)
                return None
            case exp.Alter() as alter:
                return self._alter(alter)
            case exp.Comment() as comment:
                return self._comment(comment)
        if (layout := altered_layout_of(statement.text)) is not None:
            return self._alter_layout(layout)
        words = " ".join(statement.text.split()[:2]).upper()
        raise UnsupportedStatementError(
            f"`sql` does not run {words}.", remedy="Run the statement in DuckDB's SQL, by `lake.execute`."
        )

    # --- CREATE and DROP -----------------------------------------------------------------------------------------

    def _schema(self, statement: exp.Create | exp.Drop) -> None:
        verb = "CREATE" if isinstance(statement, exp.Create) else "DROP"
        # Newer versions of sqlglot keep what DROP names as `tables`.
        parts = [part.name for part in (statement.this or statement.args["tables"][0]).parts]
        lake: Any = self.scope.lookup.default
        if len(parts) == 2 and (known := self.scope.lookup.lake_name(parts[0])) is not None:
            lake = self.scope.lookup.lakes[known]
        elif len(parts) != 1:
            raise UnsupportedStatementError(f"`sql` does not run this {verb} SCHEMA.", remedy="Name one schema only.")
        if any(map(statement.args.get, ("properties", "replace"))):
            raise UnsupportedStatementError(
                f"`sql` does not run {verb} SCHEMA with further clauses.", remedy=f"Write `{verb} SCHEMA name`."
            )
        if self.scope.lookup.prepare is not None:
            raise UnsupportedStatementError(
                f"`sql` does not run {verb} SCHEMA in a transaction.",
                remedy="Create a table `schema.table`: the schema is created with it.",
            )
        exists = {"CREATE": "IF NOT EXISTS ", "DROP": "IF EXISTS "}[verb] if statement.args.get("exists") else ""
        cascade = " CASCADE" if statement.args.get("cascade") else ""
        lake.execute(f"{verb} SCHEMA {exists}{identifier(parts[-1])}{cascade}").raise_for_error()

    def _create(self, create: exp.Create) -> WriteResult | None:
        if create.args.get("kind") != "TABLE" or create.args.get("replace"):
            raise UnsupportedStatementError(
                "`sql` creates new tables only.", remedy='Call `lake.create_table("table", schema)`.'
            )
        scope = self.scope
        target, exists = scope.named(create.this), bool(create.args.get("exists"))
        verbs, table = scope.verbs(target.lake), str(target.table)
        layout = _layout(create)
        has_columns = isinstance(create.this, exp.Schema)
        if create.expression is not None and "comment" not in layout and not has_columns:
            return verbs.write(scope.query(), table, mode="ignore" if exists else "error", **layout)  # type: ignore[no-any-return]
        if create.expression is not None or not has_columns:
            raise UnsupportedStatementError(
                "`sql` creates tables from columns, or from a query without a comment.",
                remedy='Call `lake.create_table("table", schema, comment="…")`, and INSERT the rows.',
            )
        schema = self._fields(columns_of(scope.statement.text, scope.statement.references[0].end))
        verbs.create_table(table, schema, if_not_exists=exists, **layout)
        return None

    def _drop(self, drop: exp.Drop) -> None:
        is_plain = not any(map(drop.args.get, ("cascade", "restrict", "purge", "temporary")))
        if drop.args.get("kind") != "TABLE" or not is_plain or len([*drop.find_all(exp.Table)]) != 1:
            raise UnsupportedStatementError(
                "`sql` drops one table or one schema only.",
                remedy="Run the statement in DuckDB's SQL, by `lake.execute`.",
            )
        target = self.scope.named(drop.find(exp.Table))
        lake, table = self.scope.lake(target), str(target.table)
        if self.scope.lookup.prepare is not None:
            self.scope.lookup.prepare(target.table)
        if lake.exists(table) or not drop.args.get("exists"):
            self.scope.verbs(target.lake).drop_table(table)

    # --- ALTER and COMMENT ---------------------------------------------------------------------------------------

    def _alter(self, alter: exp.Alter) -> WriteResult:
        actions = alter.args["actions"]
        others = [value for name, value in alter.args.items() if name not in ("this", "kind", "actions")]
        is_plain = alter.args.get("kind") == "TABLE" and not any([*others, alter.this.args.get("partition")])
        match actions[0] if is_plain and len(actions) == 1 else None:
            case exp.ColumnDef() | exp.Schema():
                arguments: dict[str, Any] = {"add_columns": self._fields(added_columns_of(self.scope.statement.text))}
            case exp.RenameColumn() as rename if not rename.args.get("exists"):
                arguments = {"rename_columns": {_column(rename.this): _column(rename.args["to"])}}
            case exp.AlterColumn() as column:
                arguments = self._altered_column(alter.this, column)
            case _:
                raise UnsupportedStatementError(
                    "`sql` does not run this ALTER TABLE.",
                    remedy="Call `lake.alter_table`, or run it in DuckDB's SQL, by `lake.execute`.",
                )
        return self._altered(self.scope.existing(alter.this), **arguments)

    def _altered_column(self, table: Node, column: exp.AlterColumn) -> dict[str, Any]:
        name = _column(column.this)
        given = {part: value for part, value in column.args.items() if part != "this" and value not in (None, False)}
        match sorted(given):
            case ["dtype"]:
                return {"change_types": {name: given["dtype"].sql("duckdb")}}
            case ["comment"]:
                return {"column_comments": {name: given["comment"].name}}
            case ["allow_null", "drop"]:
                return {"allow_nulls": [name]}
            case ["drop"]:
                return {"set_defaults": {name: None}}
            case ["default"]:
                return {"set_defaults": {name: self._constant(given["default"], self.scope.existing(table), name)}}
        raise UnsupportedStatementError(
            "`sql` does not run this ALTER COLUMN.",
            remedy="Write one of TYPE, COMMENT, DROP NOT NULL, SET DEFAULT and DROP DEFAULT.",
        )

    def _constant(self, default: Node, target: LakeTableName, column: str) -> Any:
        """Return the value of a default as Spark evaluates it and assigns it to a column."""
        inner = default.find_all(exp.Func, exp.Query, exp.Column)
        if not isinstance(default, _CONSTANT) or not all(isinstance(node, _CONSTANT) for node in inner):
            raise UnsupportedStatementError(
                "`sql` sets constants as defaults only.", remedy='Run `lake.execute("ALTER TABLE … SET DEFAULT …")`.'
            )
        spark, table = self.scope.lookup.spark, str(target.table)
        fields = self.scope.lake(target).read(table, spark, columns=[column]).schema.fields
        frame = assigned(spark.sql(f"SELECT {default.sql('spark')}"), fields, table)
        value = frame.collect()[0][0]
        # PySpark returns an instant as a time in the zone of the Python process.
        is_instant = isinstance(value, datetime) and frame.schema.fields[0].dataType.typeName() == "timestamp"
        return value.astimezone(UTC) if is_instant else value

    def _drop_columns(self, dropped: DroppedColumns) -> WriteResult | None:
        target = self.scope.existing(exp.to_table(dropped.table, dialect="spark"))
        names: list[str] = [*dropped.columns]
        if dropped.if_exists:
            known = {folded(column.name) for column in self.scope.columns(target)}
            names = [name for name in names if folded(name) in known]
        return self._altered(target, drop_columns=names) if names else None

    def _comment(self, comment: exp.Comment) -> WriteResult:
        kind, node, text = comment.args["kind"], comment.this, comment.expression.name
        if kind == "TABLE" and not comment.args.get("exists"):
            return self._altered(self.scope.existing(node), comment=text)
        if kind != "COLUMN" or comment.args.get("exists") or not isinstance(node, exp.Column) or not node.table:
            raise UnsupportedStatementError(
                f"`sql` does not run this COMMENT ON {kind}.",
                remedy="Comment on a table, or on a column as `table.column`.",
            )
        parts = [part.name for part in node.parts]
        table = exp.Table(**dict(zip(("this", "db", "catalog"), map(exp.to_identifier, parts[-2::-1]), strict=False)))
        return self._altered(self.scope.existing(table), column_comments={parts[-1]: text})

    def _alter_layout(self, layout: AlteredLayout) -> WriteResult:
        target = self.scope.existing(exp.to_table(layout.table, dialect="spark"))
        if layout.clause == "ORDERED":
            return self._altered(target, sort_by=[*layout.keys])
        keys, given = key_names(self.scope.definition(target)), [_transform(parsed(key)) for key in layout.keys]
        if layout.clause == "ADD":
            return self._altered(target, partition_by=keys + given)
        old, *new = given
        if (at := next((n for n, key in enumerate(keys) if folded(key) == folded(old)), None)) is None:
            raise ConfigError(
                f"`{target.table}` is not partitioned by {old}.",
                remedy=f"Its keys are {', '.join(keys)}." if keys else "It has no partition keys.",
            )
        return self._altered(target, partition_by=[*keys[:at], *new, *keys[at + 1 :]])

    def _altered(self, target: LakeTableName, **arguments: Any) -> WriteResult:
        return self.scope.verbs(target.lake).alter_table(str(target.table), **arguments)  # type: ignore[no-any-return]

    def _fields(self, columns: str) -> "StructType":
        """Return the columns of a definition as Spark reads it."""
        from pyspark.errors import ParseException
        from pyspark.sql.types import StructType

        try:
            # With one more column, because Spark takes a type alone for a column named `value`.
            fields = self.scope.lookup.spark.createDataFrame([], f"{columns}, last INT").schema.fields
            return StructType(fields[:-1])
        except ParseException as error:
            reason = str(error).strip().splitlines()[0]
        raise UnsupportedStatementError(
            f"`sql` does not understand the columns `{columns[:80]}`: {reason}",
            remedy="Write names, types, NOT NULL and COMMENT; set defaults by ALTER COLUMN … SET DEFAULT.",
        )


def _layout(create: exp.Create) -> dict[str, Any]:
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


def _column(node: Node) -> str:
    """Return the name of a top-level column."""
    if isinstance(node, exp.Column) and len(node.parts) > 1:
        raise UnsupportedStatementError(
            f"`sql` does not alter the nested column `{node.sql('spark')}`.", remedy="Use `lake.execute`."
        )
    return node.name


def _transform(key: Node) -> str:
    """Return a partition key as `lake.alter_table` takes it."""
    text = key.sql("spark")
    name, separator, rest = text.partition("(")
    rest = rest.replace("`", "")
    return f"{_TRANSFORMS.get(name.lower(), name.lower())}({rest}" if separator else text.replace("`", "")
