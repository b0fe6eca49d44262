"""`lake.merge(strategy="delete-insert")`: delete the rows that have a key of the data, then insert all of its rows."""

from collections.abc import Mapping, Sequence

import duckdb

from ducklake_orch.catalog.metadata import DataFile, Metadata, TableDef, position_name, row_id_name
from ducklake_orch.catalog.scan import ScanPlan
from ducklake_orch.catalog.search import MatchedPositions, RowPlan, inlined_sql, placed_sql
from ducklake_orch.catalog.verbs.keyed_verb import KeyedVerb
from ducklake_orch.catalog.verbs.merge_request import DeleteInsertRequest
from ducklake_orch.catalog.verbs.merge_source import SOURCE, MergeSource
from ducklake_orch.catalog.writing import FileQuery, Workers


class DeleteInsert(KeyedVerb):
    """A merge that replaces all rows of each key."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        source: MergeSource,
        request: DeleteInsertRequest,
        workers: Workers | None,
    ) -> None:
        super().__init__(con, source, request, workers)
        # A row is deleted if it has any of these keys of a source row.
        self._keys = {"keys": request.keys, "merge_key": request.merge_key or ()}

    def check(self, metadata: Metadata, table: TableDef) -> TableDef:
        """Refuse a merge that the table does not allow; return the table as the merge will leave it."""
        target = self._target(metadata, table, self._keys)
        self._source.become_rows_of(target)
        self.where = " OR ".join(f"({self._source.range(table, target, keys)})" for keys in self._keys.values() if keys)
        return target

    def find(self, plan: ScanPlan, files: Sequence[DataFile], hits: MatchedPositions) -> None:
        """Match the rows of data files."""
        position = position_name(plan.needed)
        queries = [
            FileQuery(
                file,
                f"SELECT {file.data_file_id} AS file, target.{position} AS pos"
                f" {self._matching(f'({placed_sql(plan, file, hits)})')}",
            )
            for file in files
        ]
        self._collect(plan, queries, hits.LENT.columns, hits.TABLE)

    def _matching(self, rows: str) -> str:
        """Return the FROM and WHERE of the rows that have keys of a source row."""
        joins, conditions = "", list[str]()
        for argument, keys in self._keys.items():
            if keys:
                join, is_known = self._source.with_keys_sql("target", f"by_{argument}", {key: key for key in keys})
                joins += join
                conditions.append(is_known)
        return f"FROM {rows} AS target{joins} WHERE {' OR '.join(conditions)}"

    def inlined(self, plan: RowPlan, hits: MatchedPositions) -> Mapping[str, tuple[int, ...]]:
        """Match the inlined rows; return the ids of those to retire, by inlined table."""
        select = f"SELECT target.{row_id_name(plan.table.columns)}"
        queries = [f"{select} {self._matching(rows)}" for rows in inlined_sql(self._con, plan)]
        return {
            name: tuple(int(row[0]) for row in self._con.execute(query).fetchall())
            for name, query in zip(plan.inlined, queries, strict=True)
        }

    def added(self, plan: RowPlan, hits: MatchedPositions) -> list[str]:
        """Return the query for the rows of the data."""
        kept = f" WHERE NOT source.{self._source.deleted}" if self._source.deleted else ""
        return [f"SELECT {self._source.select_list} FROM {SOURCE} AS source{kept}"]
