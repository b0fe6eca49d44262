"""`lake.merge(strategy="scd2")`: keep every version of a row, with the time from which and to which it was valid.

A version that the data change is not overwritten: it ends, and the new version begins. Rows of the table and of the
data become one timeline per key (`history_timeline.py`), so data that arrive late are put in their place.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime
from itertools import count
from typing import Any

import duckdb

from ducklake_orch.catalog.metadata import (
    ColumnDef,
    DataFile,
    Metadata,
    TableDef,
    duckdb_type,
    position_name,
    row_id_name,
)
from ducklake_orch.catalog.scan import ScanPlan
from ducklake_orch.catalog.search import MatchedPositions, RowPlan, inlined_sql, placed_sql
from ducklake_orch.catalog.verbs.history_timeline import CHANGES, VERSIONS, Timeline
from ducklake_orch.catalog.verbs.keyed_verb import DELETE, INSERT, UPDATE, UpdatingVerb
from ducklake_orch.catalog.verbs.merge_request import HistoryRequest
from ducklake_orch.catalog.verbs.merge_source import SOURCE, MergeSource
from ducklake_orch.catalog.writing import FileQuery, Lent, Workers, columns_of
from ducklake_orch.engine.quoting import folded, identifier


def resolved(
    request: HistoryRequest, types: Sequence[tuple[str, Any]]
) -> tuple[HistoryRequest, Sequence[str], Sequence[str]]:
    """Return a request whose boundary is a time or a column, the keys of the data, and what tells its rows apart.

    Without `keys`, rows are the same if all of their values are, or if they have the same `row_hash`. NULL is a value
    then.
    """
    request = replace(request, boundary=_boundary(request.boundary, [name for name, _ in types]))
    boundary = [request.boundary] if isinstance(request.boundary, str) else []
    if request.keys:
        return request, request.keys, [*request.keys, *boundary]
    request = replace(request, null_keys="match")
    if request.row_hash:
        return request, [request.row_hash], [request.row_hash, *boundary]
    other = {folded(name) for name in (request.hard_delete, *boundary) if name}
    keys = [name for name, _ in types if folded(name) not in other]
    return request, keys, [*keys, *boundary]


def _boundary(given: str | date | None, columns: Sequence[str]) -> str | date | None:
    """Return a boundary that is text as a time, unless it is the name of a column."""
    if not isinstance(given, str) or folded(given) in map(folded, columns):
        return given
    for kind in (date, datetime):
        with suppress(ValueError):
            return kind.fromisoformat(given)
    return given


class History(UpdatingVerb):
    """A merge that ends versions of rows and begins new ones."""

    actions = CHANGES
    _timeline: Timeline

    def __init__(
        self, con: duckdb.DuckDBPyConnection, source: MergeSource, request: HistoryRequest, workers: Workers | None
    ) -> None:
        super().__init__(con, source, request, workers)
        self._request = request
        self._columns: tuple[ColumnDef, ...] | None = None
        self._given: list[ColumnDef] = []

    def first_rows(self) -> str:
        """Return the query for the rows of a new table."""
        request, types = self._request, self._source.stored_types(None)
        names, boundary = {folded(name) for name, _ in types}, request.boundary
        if isinstance(boundary, str):
            kind = dict(types)[self._source.column_names(boundary)[0]]
        else:
            is_day = isinstance(boundary, date) and not isinstance(boundary, datetime)
            kind = duckdb.type("DATE" if is_day else "TIMESTAMP WITH TIME ZONE")
        times = [(name, kind) for name in (request.valid_from, request.valid_to) if folded(name) not in names]
        columns = columns_of([*types, *times], count(1))
        name = request.table
        self._match(TableDef(-1, "", -1, name.schema, name.table, "", "", columns))
        self._timeline.plan_changes()
        return self._new_versions()

    def _match(self, target: TableDef) -> None:
        """Cast the source rows to the columns of the table, and begin their timeline."""
        self._given = self._source.become_rows_of(target)
        self._timeline = Timeline(self._con, self._source, self._request, target, self._given)

    # --- planning and finding ----------------------------------------------------------------------------------------

    def check(self, metadata: Metadata, table: TableDef) -> TableDef:
        """Refuse a merge that the table does not allow; return the table as the merge will leave it."""
        request = self._request
        named = {"keys": request.keys, "merge_key": request.merge_key or ()}
        times = {"valid_from": [request.valid_from], "valid_to": [request.valid_to]}
        target = self._target(metadata, table, named | times)
        if request.schema_evolution == "promote":
            since = next(column for column in target.columns if folded(column.name) == folded(request.valid_from))
            widened = (
                replace(column, type=since.type) if folded(column.name) == folded(request.valid_to) else column
                for column in target.columns
            )
            target = replace(target, columns=tuple(widened))
        if self._columns != table.columns:  # otherwise the versions that are found stay valid
            self._match(target)
            self._columns = table.columns
        self.where = self._timeline.where(table, target)
        return target

    def find(self, plan: ScanPlan, files: Sequence[DataFile], hits: MatchedPositions) -> None:
        """Match the rows of data files."""
        self._forget(VERSIONS, plan, files)
        position = position_name(plan.needed)
        queries = [
            FileQuery(
                file,
                self._timeline.versions_sql(
                    file.data_file_id, f"({placed_sql(plan, file, hits)})", position, plan.table
                ),
            )
            for file in files
        ]
        self._collect(plan, queries, self._timeline.version_columns, VERSIONS)

    def inlined(self, plan: RowPlan, hits: MatchedPositions) -> Mapping[str, tuple[int, ...]]:
        """Match the inlined rows; return the ids of those to retire, by inlined table."""
        con, row_id = self._con, row_id_name(plan.table.columns)
        con.execute(f"DELETE FROM {VERSIONS} WHERE file < 0")
        for number, rows in enumerate(inlined_sql(con, plan), 1):
            con.execute(f"INSERT INTO {VERSIONS} {self._timeline.versions_sql(-number, rows, row_id, plan.table)}")
        self._timeline.plan_changes()
        changed = f"FROM {CHANGES} WHERE action IN ({UPDATE}, {DELETE}) AND"
        con.execute(f"DELETE FROM {hits.TABLE}")
        con.execute(f"INSERT INTO {hits.TABLE} SELECT file, pos {changed} file >= 0")
        return {
            name: tuple(int(row[0]) for row in con.execute(f"SELECT pos {changed} file = {-number}").fetchall())
            for number, name in enumerate(plan.inlined, 1)
        }

    # --- writing -----------------------------------------------------------------------------------------------------

    @property
    def lent(self) -> Sequence[Lent]:
        """The temporary tables that queries read besides data files."""
        return [Lent(CHANGES, self._timeline.change_columns, "file, pos"), self._source.lent_table]

    def _update_sql(self, plan: RowPlan, number: int, rows: str, row_key: str) -> str:
        """Return the query for versions that end, or get other values."""
        timeline, values = self._timeline, []
        given, has = {column.name for column in self._given}, {column.name for column in plan.table.columns}
        for column in plan.target.columns:
            name = identifier(column.name)
            value = plan.as_target(column, "target.") if column.name in has else "NULL"
            if column.name == timeline.until.name:
                value = self._until
            elif column.name in given and column.name != timeline.since.name:
                value = f"CASE WHEN change.n IS NULL THEN {value} ELSE source.{name} END"
            values.append(f"{value} AS {name}")
        row_id = f"target.{row_id_name(plan.table.columns)} AS {row_id_name(plan.target.columns)}"
        return (
            f"SELECT {', '.join(values)}, {row_id} FROM {rows} AS target JOIN {CHANGES} AS change"
            f" ON change.file = {number} AND change.pos = target.{row_key} AND change.action = {UPDATE}"
            f" LEFT JOIN {SOURCE} AS source ON source.{self._source.number} = change.n"
        )

    @property
    def _until(self) -> str:
        kind = duckdb_type(self._timeline.until)
        return f"CAST(coalesce(change.until, {self._timeline.active}) AS {kind})"

    def added(self, plan: RowPlan, hits: MatchedPositions) -> list[str]:
        """Return queries for new rows."""
        new = f"SELECT 1 FROM {CHANGES} WHERE action = {INSERT} LIMIT 1"
        return [self._new_versions()] if self._con.execute(new).fetchone() else []

    def _new_versions(self) -> str:
        """Return the query for the versions that begin."""
        since, until = self._timeline.since.name, self._timeline.until.name
        names = [identifier(column.name) for column in self._given if column.name not in (since, until)]
        return (
            f"SELECT {''.join(f'source.{name}, ' for name in names)}change.since AS {identifier(since)},"
            f" {self._until} AS {identifier(until)} FROM {CHANGES} AS change"
            f" JOIN {SOURCE} AS source ON source.{self._source.number} = change.n WHERE change.action = {INSERT}"
        )
