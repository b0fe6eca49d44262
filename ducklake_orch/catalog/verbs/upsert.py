"""`lake.merge(strategy="upsert")`: update, delete or insert rows of a table by matching them with source rows."""

from collections.abc import Mapping, Sequence
from itertools import count

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
from ducklake_orch.catalog.scan import ScanPlan, changing_function, parse_predicate, parse_value
from ducklake_orch.catalog.search import MatchedPositions, RowPlan, inlined_sql, placed_sql
from ducklake_orch.catalog.verbs.keyed_verb import DELETE, KEEP, UPDATE, UpdatingVerb
from ducklake_orch.catalog.verbs.merge_request import UpsertRequest
from ducklake_orch.catalog.verbs.merge_source import SOURCE, SPOOLED, MergeSource
from ducklake_orch.catalog.writing import FileQuery, Lent, Workers, columns_of, integers
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.quoting import folded, identifier
from ducklake_orch.errors import DataError, ObjectNotFoundError

# The matches: a row of the table, the number of the source row with the same keys, and the action for the pair.
_MATCHES = "__ducklake_orch_matches"
_MATCH_COLUMNS = integers("file", "pos", "n", "action")


class Upsert(UpdatingVerb):
    """A merge that has at most one source row for each key."""

    actions = _MATCHES

    def __init__(
        self, con: duckdb.DuckDBPyConnection, source: MergeSource, request: UpsertRequest, workers: Workers | None
    ) -> None:
        super().__init__(con, source, request, workers)
        self._request = request
        # A second run would insert the rows that the first run deleted.
        deletes = request.delete_condition is not None or request.when_matched == "delete"
        self._toggles = deletes and request.when_not_matched == "insert"
        self._set: dict[str, str] = {}
        self._action, self._deletes = "", "false"
        con.execute(f"CREATE OR REPLACE TEMP TABLE {_MATCHES} (file BIGINT, pos BIGINT, n BIGINT, action INTEGER)")

    def first_rows(self) -> str:
        """Return the query for the rows of a new table."""
        source, condition = self._source, self._request.delete_condition
        if self._request.when_not_matched == "ignore":
            return f"{source.first_rows()} LIMIT 0"
        if condition is None:
            return source.first_rows()
        columns = columns_of(source.stored_types(None), count(1))
        sides = [_side("source", columns), _side("target", columns)]
        deletes = parse_predicate(self._con, condition, sides, "delete_condition").sql
        return source.first_rows(f"(SELECT source.* {_unmatched_sql(SPOOLED, columns, deletes)})")

    # --- planning ------------------------------------------------------------------------------------------------

    def check(self, metadata: Metadata, table: TableDef) -> TableDef:
        """Refuse a merge that the table does not allow; return the table as the merge will leave it."""
        target = self._target(metadata, table, {"keys": self._request.keys})
        given = self._source.become_rows_of(target)
        # Conditions refer to columns as fields of `source` or `target`.
        sides = [_side("source", given), _side("target", table.columns)]
        self.replays, self.travels = self._toggles, True
        self._set = self._values(metadata.con, target, given, sides)
        self._action = self._action_sql(metadata.con, sides)
        everywhere = self._request.when_not_matched_by_source == "delete"
        self.where = None if everywhere else self._source.range(table, target, self._source.keys)
        return target

    def _values(
        self,
        con: duckdb.DuckDBPyConnection,
        target: TableDef,
        given: Sequence[ColumnDef],
        sides: Sequence[ColumnDef],
    ) -> dict[str, str]:
        """Return the expressions that a matching row's columns are set to, by column name."""
        matched = self._request.when_matched
        if not isinstance(matched, Mapping):
            return {column.name: f"source.{identifier(column.name)}" for column in given}
        names = {folded(column.name): column for column in target.columns}
        expressions = {}
        for name, text in matched.items():
            if folded(name) not in names:
                known = [column.name for column in target.columns]
                raise ObjectNotFoundError(f"`when_matched`: there is no column `{name}`.", remedy=nearest(name, known))
            column, value = names[folded(name)], parse_value(con, text, sides, f"when_matched[{name}]")
            expressions[column.name] = f"CAST({value.sql} AS {duckdb_type(column)})"
            # A second run would change values again if they are computed from the target row.
            reads_target = any(column.name == "target" for column in value.columns)
            # Functions such as `now()` must return the same value for all rows.
            self.travels = self.travels and changing_function(con, value) is None
            self.replays = self.replays or reads_target or not self.travels
        return expressions

    def _action_sql(self, con: duckdb.DuckDBPyConnection, sides: Sequence[ColumnDef]) -> str:
        """Return the SQL for the action on a matching row."""
        request, cases, mark = self._request, [], self._source.deleted
        self._deletes = "false"
        if mark is not None:
            self._deletes = f"source.{mark}"
            cases.append(f"WHEN source.{mark} THEN {DELETE}")
        for what, text, outcome in (
            ("delete_condition", request.delete_condition, f"THEN {DELETE}"),
            ("matched_condition", request.matched_condition, f"IS NOT TRUE THEN {KEEP}"),
        ):
            if text is not None:
                condition = parse_predicate(con, text, sides, what)
                self.travels = self.travels and changing_function(con, condition) is None
                cases.append(f"WHEN {condition.sql} {outcome}")
                if what == "delete_condition":
                    self._deletes += f" OR {condition.sql}"
        action = {"keep": KEEP, "delete": DELETE}.get(str(request.when_matched), UPDATE)
        return f"CASE {' '.join(cases)} ELSE {action} END" if cases else str(action)

    # --- finding -------------------------------------------------------------------------------------------------

    def find(self, plan: ScanPlan, files: Sequence[DataFile], hits: MatchedPositions) -> None:
        """Put the positions of the rows to update or delete into `hits`, and all matches into the table of matches."""
        self._forget(_MATCHES, plan, files)
        if not files:
            return
        position = position_name(plan.needed)
        queries = [
            FileQuery(file, self._match(file.data_file_id, f"({placed_sql(plan, file, hits)})", position))
            for file in files
        ]
        self._collect(plan, queries, _MATCH_COLUMNS, _MATCHES)
        searched = ", ".join(str(file.data_file_id) for file in files)
        self._refuse_ambiguous(f"FROM {_MATCHES} WHERE file IN ({searched})")
        changed = f"FROM {_MATCHES} WHERE file IN ({searched}) AND action <> {KEEP}"
        self._con.execute(f"INSERT INTO {hits.TABLE} SELECT file, pos {changed}")

    def _refuse_ambiguous(self, matches: str) -> None:
        """Refuse a target row that matches several source rows: which of them applied would be arbitrary."""
        twice = self._con.execute(f"SELECT file, pos {matches} GROUP BY ALL HAVING count(*) > 1 LIMIT 1").fetchone()
        if twice:
            raise DataError(
                f"Several source rows match the same row of the table by their keys ({', '.join(self._source.keys)}).",
                remedy="Their keys are equal in the type of the table's column: keep one of them before the merge.",
            )

    @property
    def lent(self) -> Sequence[Lent]:
        """The temporary tables that queries read besides data files."""
        return [Lent(_MATCHES, _MATCH_COLUMNS, "file, pos"), self._source.lent_table]

    def _match(self, number: int, rows: str, row_key: str) -> str:
        """Return the query that matches rows of the table with source rows.

        Args:
            number: Identifies where the rows are: the id of a data file, or a negative number for an inlined table.
            rows: The relation to put after FROM.
            row_key: The column that identifies a row in it: a position or a row id.
        """
        keys = map(identifier, self._source.keys)
        same = self._source.keys_match_sql((f"target.{key}", f"source.{key}") for key in keys)
        by_source = self._request.when_not_matched_by_source == "delete"
        n = self._source.number
        action = f"CASE WHEN source.{n} IS NULL THEN {DELETE} ELSE {self._action} END" if by_source else self._action
        return (
            f"SELECT {number} AS file, target.{row_key} AS pos, source.{n} AS n, {action} AS action"
            f" FROM {rows} AS target {'LEFT ' if by_source else ''}JOIN {SOURCE} AS source"
            f" ON {same}"
        )

    def inlined(self, plan: RowPlan, hits: MatchedPositions) -> Mapping[str, tuple[int, ...]]:
        """Match the inlined rows; return the ids of those to retire, by inlined table."""
        self._con.execute(f"DELETE FROM {_MATCHES} WHERE file < 0")
        retired = {}
        for number, (name, rows) in enumerate(zip(plan.inlined, inlined_sql(self._con, plan), strict=True), 1):
            self._con.execute(f"INSERT INTO {_MATCHES} {self._match(-number, rows, row_id_name(plan.table.columns))}")
            changed = f"SELECT pos FROM {_MATCHES} WHERE file = {-number} AND action <> {KEEP}"
            retired[name] = tuple(int(row[0]) for row in self._con.execute(changed).fetchall())
        return retired

    # --- writing -------------------------------------------------------------------------------------------------

    def _update_sql(self, plan: RowPlan, number: int, rows: str, row_key: str) -> str:
        known = {column.name for column in plan.table.columns}
        values = ", ".join(
            f"{self._set.get(column.name) or plan.as_target(column, 'target.')} AS {identifier(column.name)}"
            for column in plan.target.columns
            if column.name in self._set or column.name in known
        )
        row_id = f"target.{row_id_name(plan.table.columns)} AS {row_id_name(plan.target.columns)}"
        return (
            f"SELECT {values}, {row_id} FROM {rows} AS target JOIN {_MATCHES} AS m"
            f" ON m.file = {number} AND m.pos = target.{row_key} AND m.action = {UPDATE}"
            f" JOIN {SOURCE} AS source ON source.{self._source.number} = m.n"
        )

    def added(self, plan: RowPlan, hits: MatchedPositions) -> list[str]:
        """Return queries for new rows."""
        if self._request.when_not_matched == "ignore":
            return []
        number = self._source.number
        new = _unmatched_sql(SOURCE, plan.table.columns, self._deletes)
        new += f" AND source.{number} NOT IN (SELECT n FROM {_MATCHES} WHERE n IS NOT NULL)"
        if not self._con.execute(f"SELECT 1 {new} LIMIT 1").fetchone():
            return []
        return [f"SELECT {self._source.select_list} {new}"]


def _unmatched_sql(rows: str, columns: Sequence[ColumnDef], deletes: str) -> str:
    """Return the FROM and WHERE of the source rows that are to be inserted if they match nothing.

    Args:
        rows: The table of the source rows.
        columns: The columns of the target, which are NULL for these rows.
        deletes: The condition that deletes rows.
    """
    nulls = ", ".join(f"CAST(NULL AS {duckdb_type(column)}) AS {identifier(column.name)}" for column in columns)
    return f"FROM {rows} AS source, (SELECT {nulls}) AS target WHERE ({deletes}) IS NOT TRUE"


def _side(name: str, columns: Sequence[ColumnDef]) -> ColumnDef:
    """Return all columns of a side as one struct column, so that conditions can say `source.price > target.price`."""
    return ColumnDef(0, name, "struct", nullable=True, children=tuple(columns))
