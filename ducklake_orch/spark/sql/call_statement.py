"""Run CALL of Spark's SQL: `maintain` and `rollback`, the verbs of a lake for which Spark has no statement."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.quoting import folded
from ducklake_orch.errors import UnsupportedStatementError
from ducklake_orch.spark.sql.clauses import call_of
from ducklake_orch.spark.sql.statement import Node, parsed
from ducklake_orch.spark.sql.statement_scope import StatementScope

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STEPS = (
    "operation STRING, table STRING, status STRING, reason STRING, snapshot_id BIGINT, files_in BIGINT,"
    " files_out BIGINT, rows BIGINT, bytes BIGINT"
)
_ROLLBACK = "table STRING, to_snapshot BIGINT, snapshot_id BIGINT, previous_snapshot_id BIGINT"
_FIELDS = [field.split()[0] for field in _STEPS.split(", ")]
# The procedures, with their arguments in order.
_PROCEDURES = {"maintain": ("operations", "schemas", "tables", "dry_run"), "rollback": ("table", "to_snapshot")}


@dataclass(frozen=True)
class CallStatement:
    """A call of a procedure, with what it can name."""

    scope: StatementScope

    def run(self) -> "DataFrame":
        """Run the procedure: `maintain` returns a row for each step, `rollback` its result."""
        name, given = call_of(self.scope.statement.text)
        lookup = self.scope.lookup
        lake, _, procedure = name.replace("`", "").rpartition(".")
        called = lookup.lake_name(lake) if lake else lookup.default_name
        if called is None or folded(procedure) not in _PROCEDURES:
            known = [*_PROCEDURES, *(f"{known}.{each}" for known in lookup.lakes for each in _PROCEDURES)]
            raise UnsupportedStatementError(f"There is no procedure `{name}`.", remedy=nearest(name, known))
        arguments = _arguments(folded(procedure), given)
        if folded(procedure) == "rollback":
            if len(arguments) != 2:
                raise UnsupportedStatementError(
                    "`rollback` takes a table and a snapshot.", remedy="Write `CALL rollback('orders', 3)`."
                )
            done = self.scope.verbs(called).rollback(**arguments)
            row = (done.table, arguments["to_snapshot"], done.snapshot_id, done.previous_snapshot_id)
            return lookup.spark.createDataFrame([row], _ROLLBACK)
        if lookup.prepare is not None:
            raise UnsupportedStatementError("A transaction runs no maintenance.", remedy="Call it on the lake.")
        if not isinstance(arguments.get("dry_run", False), bool):
            raise UnsupportedStatementError("`dry_run` is true or false.", remedy="Write `dry_run => true`.")
        arguments = {key: [value] if isinstance(value, str) else value for key, value in arguments.items()}
        report: Any = lookup.lakes[called].maintain(**arguments).raise_for_error()  # type: ignore[attr-defined]
        rows = [{field: getattr(step, field) for field in _FIELDS} for step in report.operations]
        return lookup.spark.createDataFrame(rows, _STEPS)


def _arguments(procedure: str, given: list[tuple[str | None, str]]) -> Mapping[str, Any]:
    """Return the arguments of a procedure by name."""
    names, found = _PROCEDURES[procedure], dict[str, Any]()
    for position, (name, text) in enumerate(given):
        key = folded(name) if name is not None else names[position] if position < len(names) else ""
        if name is None and any(named for named, _ in given[:position]):
            raise UnsupportedStatementError(
                f"The argument `{text}` has no name, but follows one with a name.", remedy="Name it, too."
            )
        if key not in names or key in found:
            raise UnsupportedStatementError(
                f"`{procedure}` has no argument `{name or text}`.", remedy=f"Its arguments are {', '.join(names)}."
            )
        found[key] = _constant(parsed(text))
    return found


def _constant(node: Node) -> Any:
    match node:
        case exp.Literal(is_string=True):
            return node.this
        case exp.Literal() if node.this.isdigit():
            return int(node.this)
        case exp.Boolean():
            return bool(node.this)
        case exp.Array():
            return [_constant(item) for item in node.expressions]
    raise UnsupportedStatementError(
        f"`{node.sql('spark')}` is not a constant.", remedy="Write texts, whole numbers, true, false, or array(…)."
    )
