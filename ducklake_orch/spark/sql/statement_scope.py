"""What a statement can name: its lakes, tables, frames and parameters."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import TokenType, exp

from ducklake_orch.catalog.metadata import ColumnDef, TableDef
from ducklake_orch.errors import ObjectNotFoundError, UnsupportedStatementError
from ducklake_orch.spark.sql.lake_moment import lake_moment
from ducklake_orch.spark.sql.run_query import Args, run_query
from ducklake_orch.spark.sql.statement import Node, Statement, parse_statement, tokens_of
from ducklake_orch.spark.sql.table_lookup import LakeTableName, TableLookup

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

RESULT = (
    "table STRING, mode STRING, snapshot_id BIGINT, previous_snapshot_id BIGINT, rows_written BIGINT,"
    " rows_removed BIGINT, files_added BIGINT, files_removed BIGINT, bytes_written BIGINT, replayed BOOLEAN"
)
_FIELDS = [field.split()[0] for field in RESULT.split(", ")]
_QUERY = (TokenType.SELECT, TokenType.WITH, TokenType.VALUES, TokenType.FROM)


@dataclass(frozen=True)
class StatementScope:
    """A statement other than a query, and what it needs.

    Attributes:
        lookup: The lakes and frames that it can name.
        statement: The statement.
        args: Its parameters.
        verbs: Returns the object whose verbs change a lake: the lake itself, or a transaction.
    """

    lookup: TableLookup
    statement: Statement
    args: Args
    verbs: "Callable[[str], Any]"

    def named(self, node: Node | None) -> LakeTableName:
        """Return the table that a node names, whether it exists or not."""
        table = node.this if isinstance(node, exp.Schema) else node
        if not isinstance(table, exp.Table):
            raise UnsupportedStatementError("The statement names no table.", remedy="Name a table of the lake.")
        parts = tuple(part.name for part in table.parts)
        if (found := next(self.lookup.tables(parts), None)) is None:
            raise ObjectNotFoundError(f"There is no lake `{parts[0]}`.", remedy="Name it in `lakes`.")
        return found

    def existing(self, node: Node | None) -> LakeTableName:
        """Return the table that a node names; the error names the nearest table."""
        found = self.named(node)
        if self.lookup.prepare is not None:
            self.lookup.prepare(found.table)
        self.lake(found).table(str(found.table)).schema()
        return found

    def columns(self, name: LakeTableName) -> tuple[ColumnDef, ...]:
        """Return the columns of a table in the lake."""
        return self.definition(name).columns

    def definition(self, name: LakeTableName) -> TableDef:
        """Return the definition of a table in the lake."""
        return lake_moment(self.lake(name), [name.table]).tables[name.table.key]

    def fields(self, name: LakeTableName) -> "list[StructField]":
        """Return the columns of a table as Spark reads them."""
        return self.lake(name).read(str(name.table), self.lookup.spark).schema.fields  # type: ignore[no-any-return]

    def lake(self, name: LakeTableName) -> Any:
        """Return the lake of a table."""
        return self.lookup.lakes[name.lake]

    def query(self) -> "DataFrame":
        """Return the rows of the query within the statement."""
        text = self.statement.text
        query = parse_statement(text[_start_of_query(text) :], self.lookup.frames)
        return run_query(self.lookup, query, self.args)

    def result(self, result: Any) -> "DataFrame":
        """Return the result of a verb as one row; no row if the verb has no result."""
        rows = [] if result is None else [{name: getattr(result, name) for name in _FIELDS}]
        return self.lookup.spark.createDataFrame(rows, RESULT)


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
