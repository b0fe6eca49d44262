"""`lake.update`: change values of the rows that meet a condition; the rows keep their ids."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ducklake_orch.catalog.metadata import Metadata, TableDef, duckdb_type, position_name, row_id_name
from ducklake_orch.catalog.scan import Predicate, changing_function, parse_predicate, parse_value, refuse_changing
from ducklake_orch.catalog.search import Finder, Losses, MatchedPositions, RowPlan, inlined_sql, placed_sql
from ducklake_orch.catalog.verbs.row_change import RowRequest, change_rows
from ducklake_orch.catalog.writing import FileQuery, Workers
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.exactly_once import refuse_managed
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.quoting import folded, identifier
from ducklake_orch.errors import ConfigError, ObjectNotFoundError
from ducklake_orch.results import WriteResult


@dataclass(frozen=True)
class UpdateRequest(RowRequest):
    """The arguments of `lake.update`."""

    set: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        texts = isinstance(self.set, Mapping) and all(
            isinstance(text, str) for pair in self.set.items() for text in pair
        )
        if not texts or not self.set:
            raise ConfigError(
                f"`set` = {self.set!r} is not a mapping of columns to expressions.",
                remedy="Give SQL expressions: `{'price': 'price * 1.1', 'state': \"'sold'\"}`.",
            )
        if len({folded(name) for name in self.set}) < len(self.set):
            raise ConfigError(f"`set` = {self.set!r} names a column twice.")
        if self.where is not None and (not isinstance(self.where, str) or not self.where.strip()):
            raise ConfigError(f"`where` = {self.where!r} is not a SQL condition.", remedy="Omit it to update all rows.")


def update_rows(
    config: LakeConfig, request: UpdateRequest, finder: Finder, workers: Workers | None = None
) -> WriteResult:
    """Update the rows of a table that meet a condition."""
    refuse_managed(config, f"updating rows of `{request.table}`")
    with working_connection(config, apart=True) as con:
        return change_rows(config, con, request, _Update(request), finder, workers)


class _Update:
    mode = "update"
    needs_values = True
    changes_every_match = True
    replays = False
    travels = True
    lent = ()

    def __init__(self, request: UpdateRequest) -> None:
        self.where = request.where
        self._set = request.set
        self._values: dict[str, Predicate] = {}

    def check(self, metadata: Metadata, table: TableDef) -> TableDef:
        if self.where is not None:
            refuse_changing(metadata.con, parse_predicate(metadata.con, self.where, table.columns))
        self._values = parse_set(metadata, table, self._set)
        # Functions such as `now()` must return the same value for all rows.
        self.travels = not any(changing_function(metadata.con, value) for value in self._values.values())
        # A second run would change values again if they are computed from columns.
        self.replays = not self.travels or any(value.columns for value in self._values.values())
        return table

    def changed(self, plan: RowPlan, losses: Losses, hits: MatchedPositions) -> list[FileQuery]:
        position = position_name(plan.scan.needed)
        conditions = {file.data_file_id: f"{position} IN ({hits.positions_sql(file)})" for file in losses.files}
        conditions |= dict.fromkeys(plan.scan.certain, "true")
        return [
            FileQuery(
                file, self._select(plan, f"({placed_sql(plan.scan, file, hits)}) WHERE {conditions[file.data_file_id]}")
            )
            for file in losses.files
        ]

    def changed_inlined(self, plan: RowPlan, hits: MatchedPositions) -> list[str]:
        return [self._select(plan, rows) for rows in inlined_sql(hits.con, plan)]

    def _select(self, plan: RowPlan, rows: str) -> str:
        values = ", ".join(
            f"{set_sql(self._values[folded(column.name)], duckdb_type(column))} AS {identifier(column.name)}"
            if folded(column.name) in self._values
            else identifier(column.name)
            for column in plan.table.columns
        )
        return f"SELECT {values}, {row_id_name(plan.table.columns)} FROM {rows}"

    def inlined(self, plan: RowPlan, hits: MatchedPositions) -> Mapping[str, tuple[int, ...]]:
        return plan.inlined_ids()

    def added(self, plan: RowPlan, hits: MatchedPositions) -> list[str]:
        return []


def parse_set(metadata: Metadata, table: TableDef, given: Mapping[str, str]) -> dict[str, Predicate]:
    """Parse the expressions of `set`; return them by column name in lower case."""
    names = {folded(column.name): column.name for column in table.columns}
    for name in given:
        if folded(name) not in names:
            raise ObjectNotFoundError(
                f"`set`: there is no column `{name}`.", remedy=nearest(name, list(names.values()))
            )
    return {
        folded(name): parse_value(metadata.con, text, table.columns, f"set[{name}]") for name, text in given.items()
    }


def set_sql(value: Predicate, kind: str) -> str:
    """Return an expression, cast to the type of its column."""
    return f"CAST({value.sql} AS {kind})"
