"""`lake.delete`: delete the rows that meet a condition."""

from collections.abc import Mapping
from dataclasses import dataclass

from ducklake_orch.catalog.metadata import Metadata, TableDef
from ducklake_orch.catalog.scan import parse_predicate, refuse_changing
from ducklake_orch.catalog.search import Finder, Losses, MatchedPositions, RowPlan
from ducklake_orch.catalog.verbs.row_change import RowRequest, change_rows
from ducklake_orch.catalog.writing import FileQuery, Workers
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.exactly_once import refuse_managed
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.errors import ConfigError
from ducklake_orch.results import WriteResult


@dataclass(frozen=True)
class DeleteRequest(RowRequest):
    """The arguments of `lake.delete`."""

    where: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.where, str) or not self.where.strip():
            raise ConfigError(
                f"`where` = {self.where!r} is not a SQL condition.", remedy="`lake.truncate` removes all rows."
            )


def delete_rows(
    config: LakeConfig, request: DeleteRequest, finder: Finder, workers: Workers | None = None
) -> WriteResult:
    """Delete the rows of a table that meet a condition."""
    refuse_managed(config, f"deleting rows of `{request.table}`")
    with working_connection(config, apart=True) as con:
        return change_rows(config, con, request, _Delete(request.where), finder, workers)


class _Delete:
    mode = "delete"
    needs_values = False
    changes_every_match = True
    replays = False
    travels = True
    lent = ()

    def __init__(self, where: str) -> None:
        self.where = where

    def check(self, metadata: Metadata, table: TableDef) -> TableDef:
        refuse_changing(metadata.con, parse_predicate(metadata.con, self.where, table.columns))
        return table

    def changed(self, plan: RowPlan, losses: Losses, hits: MatchedPositions) -> list[FileQuery]:
        return []

    def changed_inlined(self, plan: RowPlan, hits: MatchedPositions) -> list[str]:
        return []

    def inlined(self, plan: RowPlan, hits: MatchedPositions) -> Mapping[str, tuple[int, ...]]:
        return plan.inlined_ids()

    def added(self, plan: RowPlan, hits: MatchedPositions) -> list[str]:
        return []
