"""Run statements of Spark's SQL that describe a lake: SHOW and DESCRIBE, with the columns that Spark returns."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from ducklake_orch.catalog.parquet import key_names
from ducklake_orch.engine.quoting import folded
from ducklake_orch.errors import ObjectNotFoundError, UnsupportedStatementError
from ducklake_orch.spark.sql.clauses import Shown, shown_of
from ducklake_orch.spark.sql.lake_moment import lake_moment
from ducklake_orch.spark.sql.metadata_frames import metadata_frame
from ducklake_orch.spark.sql.statement_scope import StatementScope
from ducklake_orch.spark.sql.table_lookup import LakeTableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SCHEMAS = ("SCHEMAS", "DATABASES", "NAMESPACES")


@dataclass(frozen=True)
class ShowStatement:
    """A statement that describes a lake, with what it can name."""

    scope: StatementScope

    def run(self) -> "DataFrame":
        """Run the statement."""
        if isinstance(self.scope.statement.tree, exp.Describe):
            return self._describe(self.scope.statement.tree)
        shown = shown_of(self.scope.statement.text)
        create = self.scope.lookup.spark.createDataFrame
        match shown.what:
            case "TABLES":
                return create(list(self._tables(shown)), "namespace STRING, tableName STRING, isTemporary BOOLEAN")
            case "COLUMNS":
                fields = self.scope.fields(self._shown_table(shown))
                return create([(field.name,) for field in fields], "col_name STRING")
            case "PARTITIONS":
                name = self._shown_table(shown)
                found = self.scope.lake(name).table(str(name.table)).partitions()
                rows = [
                    "/".join(f"{key}={'null' if value is None else value}" for key, value in partition.values.items())
                    for partition in found
                    if partition.values
                ]
                return create([(row,) for row in rows], "partition STRING")
            case what if what in _SCHEMAS:
                names = sorted({schema for schema, _ in self._names(self._shown_lake(shown))})
                return create([(name,) for name in names if shown.fits(name)], "namespace STRING")
        raise UnsupportedStatementError(
            f"`sql` does not run SHOW {shown.what}.",
            remedy="It runs SHOW TABLES, SCHEMAS, COLUMNS and PARTITIONS; `lake.execute` runs DuckDB's SHOW.",
        )

    def _tables(self, shown: Shown) -> Iterator[tuple[str, str, bool]]:
        parts = [part.name for part in exp.to_table(shown.within, dialect="spark").parts] if shown.within else ["main"]
        lake, schema = self.scope.lookup.default, parts[-1]
        if len(parts) > 1:
            lake = self.scope.lake(self.scope.named(exp.to_table(f"{shown.within}.t", dialect="spark")))
        names = self._names(lake)
        if folded(schema) not in {folded(known) for known, _ in names}:
            raise ObjectNotFoundError(f"There is no schema `{schema}`.", remedy="SHOW SCHEMAS lists them.")
        for known, table in names:
            if table and folded(known) == folded(schema) and shown.fits(table):
                yield known, table, False

    def _names(self, lake: Any) -> list[tuple[str, str]]:
        """Return pairs of a schema and a table or view in it, and a pair of each schema and an empty text."""
        if self.scope.lookup.prepare is not None:
            raise UnsupportedStatementError(
                "`sql` does not list tables in a transaction or stage.", remedy="Call `lake.sql` without one."
            )
        alias = lake.config.alias
        with lake.connect(read_only=True) as con:
            return sorted(
                con.execute(
                    "SELECT schema_name, '' FROM duckdb_schemas() WHERE database_name = $1 UNION ALL"
                    " SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = $1 UNION ALL"
                    " SELECT schema_name, view_name FROM duckdb_views() WHERE database_name = $1 AND NOT internal",
                    [alias],
                ).fetchall()
            )

    # --- DESCRIBE ------------------------------------------------------------------------------------------------

    def _describe(self, describe: exp.Describe) -> "DataFrame":
        style, kind = (str(describe.args.get(part) or "").upper() for part in ("style", "kind"))
        is_table = isinstance(describe.this, exp.Table) and kind in ("", "TABLE")
        is_plain = not any(map(describe.args.get, ("partition", "as_json", "format")))
        if not (is_table and is_plain and style in ("", "EXTENDED", "FORMATTED", "HISTORY")):
            raise UnsupportedStatementError(
                f"`sql` does not run `{self.scope.statement.text[:80]}`.", remedy="Write DESCRIBE [EXTENDED] table."
            )
        name = self.scope.existing(describe.this)
        if style == "HISTORY":
            moment = lake_moment(self.scope.lake(name), [name.table])
            return metadata_frame(self.scope.lookup.spark, moment, name.table, "history")
        fields = self.scope.fields(name)
        rows = [(field.name, field.dataType.simpleString(), field.metadata.get("comment")) for field in fields]
        if keys := key_names(self.scope.definition(name)):
            rows += [("# Partitioning", "", ""), *((f"Part {n}", key, "") for n, key in enumerate(keys))]
        if style:
            listed = self.scope.lake(name).tables(rows=True)
            found = next(table for table in listed if name.table.names(table.schema, table.table))
            facts = {"Name": str(name.table), "Comment": found.comment or "", "Rows": found.rows}
            facts |= {"Files": found.file_count, "Bytes": found.file_bytes}
            rows += [("# Detailed Table Information", "", ""), *((key, str(value), "") for key, value in facts.items())]
        return self.scope.lookup.spark.createDataFrame(rows, "col_name STRING, data_type STRING, comment STRING")

    def _shown_lake(self, shown: Shown) -> Any:
        """Return the lake of SHOW SCHEMAS [IN lake]."""
        if shown.within is None:
            return self.scope.lookup.default
        parts = [part.name for part in exp.to_table(shown.within, dialect="spark").parts]
        known = self.scope.lookup.lake_name(parts[0])
        if len(parts) != 1 or known is None:
            raise ObjectNotFoundError(f"There is no lake `{shown.within}`.", remedy="Name it in `lakes`.")
        return self.scope.lookup.lakes[known]

    def _shown_table(self, shown: Shown) -> LakeTableName:
        if shown.within is None:
            raise UnsupportedStatementError(
                f"SHOW {shown.what} names no table.", remedy=f"Write SHOW {shown.what} IN …"
            )
        return self.scope.existing(exp.to_table(shown.within, dialect="spark"))
