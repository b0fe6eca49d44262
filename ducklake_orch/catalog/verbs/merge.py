"""`lake.write(mode="merge")`: update, delete or insert rows of a table by matching them with source rows on keys."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from ducklake_orch.catalog.search import (
    DuckDBFinder,
    Losses,
    MatchedPositions,
    RowPlan,
    inlined_sql,
    placed_sql,
    planning,
)
from ducklake_orch.catalog.verbs.merge_source import SOURCE, SPOOLED, MergeSource, Spool
from ducklake_orch.catalog.verbs.row_change import RowRequest, change_rows
from ducklake_orch.catalog.verbs.row_source import ArrowRows
from ducklake_orch.catalog.verbs.write import write_table
from ducklake_orch.catalog.verbs.write_request import WriteRequest
from ducklake_orch.catalog.writing import (
    FileQuery,
    Lent,
    Workers,
    check_layout,
    columns_of,
    evolved,
    integers,
)
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.exactly_once import refuse_managed
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.quoting import folded, identifier
from ducklake_orch.errors import ConfigError, DataError, ObjectExistsError, ObjectNotFoundError
from ducklake_orch.results import WriteResult

# The matches: a row of the table, the number of the source row with the same keys, and the action for the pair.
_MATCHES = "__ducklake_orch_matches"
_MATCH_COLUMNS = integers("file", "pos", "n", "action")
_UPDATE, _DELETE, _KEEP = 1, 2, 0
# The field id of the row number in staged files. No column of a table has this id, and DuckLake does not reserve it.
_NUMBER_FIELD = 2_000_000_000


@dataclass(frozen=True)
class MergeRequest(RowRequest):
    """The arguments of a merge; `lake.write` documents them."""

    keys: Sequence[str] = ()
    when_matched: str | Mapping[str, str] = "update"
    matched_condition: str | None = None
    delete_condition: str | None = None
    when_not_matched: str = "insert"
    when_not_matched_by_source: str = "keep"
    null_keys: str = "error"
    schema_evolution: str = "error"
    partition_by: Sequence[str] | None = None
    sort_by: Sequence[str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.keys, str) or not self.keys:
            raise ConfigError(
                f"`keys` = {self.keys!r} is not a list of names.", remedy="Mode `merge` needs the key columns."
            )
        if len({folded(name) for name in self.keys}) < len(self.keys):
            raise ConfigError(f"`keys` = {self.keys!r} names a column twice.")
        for name, value, known in (
            ("when_not_matched", self.when_not_matched, ("insert", "ignore")),
            ("when_not_matched_by_source", self.when_not_matched_by_source, ("keep", "delete")),
            ("null_keys", self.null_keys, ("error", "match")),
            ("schema_evolution", self.schema_evolution, ("error", "add", "promote")),
        ):
            if value not in known:
                raise ConfigError(f"`{name}` = {value!r} is unknown.", remedy=nearest(str(value), known))
        known = ("update", "keep", "delete")
        if not isinstance(self.when_matched, Mapping) and self.when_matched not in known:
            remedy = f"{nearest(str(self.when_matched), known)} Or give a mapping of columns to expressions.".strip()
            raise ConfigError(f"`when_matched` = {self.when_matched!r} is unknown.", remedy=remedy)


def merge_rows(config: LakeConfig, rows: Spool, request: MergeRequest, workers: Workers | None = None) -> WriteResult:
    """Merge source rows into a table; create the table if it does not exist.

    Args:
        config: The lake.
        rows: The source rows; they are read once.
        request: Target table and merge options.
        workers: Matches rows and writes changed rows on other machines; None to do both in this process.
    """
    refuse_managed(config, f"merging into `{request.table}`")
    with working_connection(config, apart=True) as con:
        source = MergeSource(con, rows, request.keys, request.null_keys)
        merge = _Merge(con, source, request, workers)
        if not merge.target_exists(config):
            try:
                return _create_table(config, con, source, request)
            except ObjectExistsError:
                pass  # a concurrent writer created the table first
        return change_rows(config, con, request, merge, merge, workers)


def _create_table(
    config: LakeConfig, con: duckdb.DuckDBPyConnection, source: MergeSource, request: MergeRequest
) -> WriteResult:
    """Create the table with the source rows to insert."""
    source.check_rows()
    query = f"FROM {SPOOLED}"
    if request.when_not_matched == "ignore":
        query += " LIMIT 0"
    elif request.delete_condition is not None:
        columns = columns_of(source.types, count(1))
        sides = [_side("source", columns), _side("target", columns)]
        condition = parse_predicate(con, request.delete_condition, sides, "delete_condition").sql
        query = f"SELECT source.* {_unmatched_sql(SPOOLED, columns, condition)}"
    creation = WriteRequest(
        table=request.table,
        mode="error",
        partition_by=request.partition_by,
        sort_by=request.sort_by,
        idempotency_key=request.idempotency_key,
        commit=request.commit,
    )
    with source.again(query) as reader:
        return replace(write_table(config, ArrowRows(reader), creation), mode="merge")


class _Merge(DuckDBFinder):
    """A merge, both as the verb and as the finder of a row change."""

    mode = "merge"
    needs_values = True
    changes_every_match = False
    replays = False
    travels = True

    def __init__(
        self, con: duckdb.DuckDBPyConnection, source: MergeSource, request: MergeRequest, workers: Workers | None
    ) -> None:
        self._con = con
        self._workers = workers
        self._source = source
        self._request = request
        self.where: str | None = None
        # A second run would insert the rows that the first run deleted.
        deletes = request.delete_condition is not None or request.when_matched == "delete"
        self._toggles = deletes and request.when_not_matched == "insert"
        self._set: dict[str, str] = {}
        self._action, self._deletes = "", "false"
        con.execute(f"CREATE OR REPLACE TEMP TABLE {_MATCHES} (file BIGINT, pos BIGINT, n BIGINT, action INTEGER)")

    def target_exists(self, config: LakeConfig) -> bool:
        """Return whether the target table exists."""
        with planning(config, f"Looking for `{self._request.table}`") as metadata:
            return metadata.find_table(self._request.table, metadata.latest().snapshot_id) is not None

    # --- planning ------------------------------------------------------------------------------------------------

    def check(self, metadata: Metadata, table: TableDef) -> TableDef:
        request = self._request
        check_layout(metadata.con, table, request.partition_by, request.sort_by)
        known = {folded(column.name): column.name for column in table.columns}
        for key in request.keys:
            if folded(key) not in known:
                raise ObjectNotFoundError(
                    f"`keys`: table `{table}` has no column `{key}`.", remedy=nearest(key, list(known.values()))
                )
        target = table
        if request.schema_evolution != "error":
            promote = request.schema_evolution == "promote"
            target = evolved(metadata, table, self._source.types, promote=promote)
        given = self._source.become_rows_of(target)
        # Conditions refer to columns as fields of `source` or `target`.
        sides = [_side("source", given), _side("target", table.columns)]
        self.replays, self.travels = self._toggles, True
        self._set = self._values(metadata.con, target, given, sides)
        self._action = self._action_sql(metadata.con, sides)
        everywhere = request.when_not_matched_by_source == "delete"
        self.where = None if everywhere else self._source.range(table, target)
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
        request, cases = self._request, []
        for what, text, outcome in (
            ("delete_condition", request.delete_condition, f"THEN {_DELETE}"),
            ("matched_condition", request.matched_condition, f"IS NOT TRUE THEN {_KEEP}"),
        ):
            if text is not None:
                condition = parse_predicate(con, text, sides, what)
                self.travels = self.travels and changing_function(con, condition) is None
                cases.append(f"WHEN {condition.sql} {outcome}")
                if what == "delete_condition":
                    self._deletes = condition.sql
        action = {"keep": _KEEP, "delete": _DELETE}.get(str(request.when_matched), _UPDATE)
        return f"CASE {' '.join(cases)} ELSE {action} END" if cases else str(action)

    # --- finding -------------------------------------------------------------------------------------------------

    def find(self, plan: ScanPlan, files: Sequence[DataFile], hits: MatchedPositions) -> None:
        """Put the positions of the rows to update or delete into `hits`, and all matches into the table of matches."""
        to_search = {file.data_file_id for file in files}
        known = ", ".join(str(file.data_file_id) for file in plan.files if file.data_file_id not in to_search) or "NULL"
        self._con.execute(f"DELETE FROM {_MATCHES} WHERE (file IN ({known})) IS NOT TRUE")
        if not files:
            return
        position = position_name(plan.needed)
        queries = [
            FileQuery(file, self._match(file.data_file_id, f"({placed_sql(plan, file, hits)})", position))
            for file in files
        ]
        if self._workers and self.travels and self._workers.are_worth(files):
            self.engine = self._workers.engine
            with self._workers.select(self._con, plan.table, queries, [self._data], _MATCH_COLUMNS) as found:
                self._con.execute(f"INSERT INTO {_MATCHES} {found}")
        else:
            for query in queries:
                self._con.execute(f"INSERT INTO {_MATCHES} {query.sql}")
        searched = ", ".join(str(file.data_file_id) for file in files)
        self._refuse_ambiguous(f"FROM {_MATCHES} WHERE file IN ({searched})")
        changed = f"FROM {_MATCHES} WHERE file IN ({searched}) AND action <> {_KEEP}"
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
    def _data(self) -> Lent:
        """The source rows, cast to the columns of the table."""
        name = self._source.number
        number = ColumnDef(_NUMBER_FIELD, name, "int64", nullable=False)
        return Lent(SOURCE, (*self._source.columns, number), name, whole=True)

    @property
    def lent(self) -> Sequence[Lent]:
        return [Lent(_MATCHES, _MATCH_COLUMNS, "file, pos"), self._data]

    def _match(self, number: int, rows: str, row_key: str) -> str:
        """Return the query that matches rows of the table with source rows.

        Args:
            number: Identifies where the rows are: the id of a data file, or a negative number for an inlined table.
            rows: The relation to put after FROM.
            row_key: The column that identifies a row in it: a position or a row id.
        """
        sign = "=" if self._request.null_keys == "error" else "IS NOT DISTINCT FROM"
        same = " AND ".join(f"target.{identifier(key)} {sign} source.{identifier(key)}" for key in self._source.keys)
        by_source = self._request.when_not_matched_by_source == "delete"
        n = self._source.number
        action = f"CASE WHEN source.{n} IS NULL THEN {_DELETE} ELSE {self._action} END" if by_source else self._action
        return (
            f"SELECT {number} AS file, target.{row_key} AS pos, source.{n} AS n, {action} AS action"
            f" FROM {rows} AS target {'LEFT ' if by_source else ''}JOIN {SOURCE} AS source ON {same}"
        )

    def inlined(self, plan: RowPlan, hits: MatchedPositions) -> Mapping[str, tuple[int, ...]]:
        self._con.execute(f"DELETE FROM {_MATCHES} WHERE file < 0")
        retired = {}
        for number, (name, rows) in enumerate(zip(plan.inlined, inlined_sql(self._con, plan), strict=True), 1):
            self._con.execute(f"INSERT INTO {_MATCHES} {self._match(-number, rows, row_id_name(plan.table.columns))}")
            changed = f"SELECT pos FROM {_MATCHES} WHERE file = {-number} AND action <> {_KEEP}"
            retired[name] = tuple(int(row[0]) for row in self._con.execute(changed).fetchall())
        return retired

    # --- writing -------------------------------------------------------------------------------------------------

    def changed(self, plan: RowPlan, losses: Losses, hits: MatchedPositions) -> list[FileQuery]:
        ids, position = self._updated(), position_name(plan.scan.needed)
        return [
            FileQuery(
                file, self._update_sql(plan, file.data_file_id, f"({placed_sql(plan.scan, file, hits)})", position)
            )
            for file in losses.files
            if file.data_file_id in ids
        ]

    def changed_inlined(self, plan: RowPlan, hits: MatchedPositions) -> list[str]:
        ids = self._updated()
        return [
            self._update_sql(plan, -n, rows, row_id_name(plan.table.columns))
            for n, rows in enumerate(inlined_sql(self._con, plan), 1)
            if -n in ids
        ]

    def _updated(self) -> set[int]:
        query = f"SELECT DISTINCT file FROM {_MATCHES} WHERE action = {_UPDATE}"
        return {int(row[0]) for row in self._con.execute(query).fetchall()}

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
            f" ON m.file = {number} AND m.pos = target.{row_key} AND m.action = {_UPDATE}"
            f" JOIN {SOURCE} AS source ON source.{self._source.number} = m.n"
        )

    def added(self, plan: RowPlan, hits: MatchedPositions) -> list[str]:
        if self._request.when_not_matched == "ignore":
            return []
        number = self._source.number
        new = _unmatched_sql(SOURCE, plan.table.columns, self._deletes)
        new += f" AND source.{number} NOT IN (SELECT n FROM {_MATCHES} WHERE n IS NOT NULL)"
        if not self._con.execute(f"SELECT 1 {new} LIMIT 1").fetchone():
            return []
        return [f"SELECT source.* EXCLUDE ({number}) {new}"]


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
