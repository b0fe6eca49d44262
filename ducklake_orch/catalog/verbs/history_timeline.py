"""The timeline of each key: versions of its row in the table, and events in the data, in the order of their times.

An event begins a version, or ends one if the data mark the row as deleted or no longer have it. A version lasts until
the next moment of its timeline, so an event that arrives late shortens the version in which it happened.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import duckdb

from ducklake_orch.catalog.metadata import ColumnDef, TableDef, duckdb_type
from ducklake_orch.catalog.verbs.keyed_verb import DELETE, INSERT, UPDATE
from ducklake_orch.catalog.verbs.merge_request import HistoryRequest
from ducklake_orch.catalog.verbs.merge_source import ADDED_FIELDS, SOURCE, MergeSource
from ducklake_orch.catalog.writing import integers
from ducklake_orch.engine.quoting import folded, identifier, literal
from ducklake_orch.errors import ConfigError, DataError

# The versions that the data may change: where each one is, from when to when it is valid (until NULL if it still is),
# whether the data have its key, and its keys and values.
VERSIONS = "__ducklake_orch_versions"
# What changes: versions that end, get other values (those of source row `n`) or are deleted, and source rows to insert.
CHANGES = "__ducklake_orch_changes"


class Timeline:
    """The timelines of the keys of a merge.

    Args:
        con: A connection that nothing else uses during the merge.
        source: The source rows, cast to the columns of the table.
        request: The arguments of the merge.
        target: The table as the merge will leave it.
        given: The columns of the table that the source rows have.

    Attributes:
        since: The column from which a version is valid.
        until: The column until which it is valid.
        version_columns: The columns of `VERSIONS`.
        change_columns: The columns of `CHANGES`.
    """

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        source: MergeSource,
        request: HistoryRequest,
        target: TableDef,
        given: Sequence[ColumnDef],
    ) -> None:
        self._con, self._source, self._request = con, source, request
        columns = {folded(column.name): column for column in target.columns}
        self.since, self.until = columns[folded(request.valid_from)], columns[folded(request.valid_to)]
        self._kind = duckdb_type(self.since)
        self._keys = {f"k{n}": columns[folded(key)] for n, key in enumerate(source.keys)}
        self._values = {f"v{n}": column for n, column in enumerate(self._compared(given))}
        self._check_merge_key()
        self._merge_key = {f"m{n}": columns[folded(key)] for n, key in enumerate(request.merge_key or ())}
        self._check_times(given)
        times = [replace(self.since, name="since"), replace(self.until, name="until", type=self.since.type)]
        file, pos, found = (
            ColumnDef(ADDED_FIELDS + n, name, kind, nullable=True)
            for n, (name, kind) in enumerate((("file", "int64"), ("pos", "int64"), ("found", "boolean")))
        )
        named = [replace(column, name=name) for name, column in (self._keys | self._values).items()]
        self.version_columns = tuple(replace(column, nullable=True) for column in (file, pos, *times, found, *named))
        self.change_columns = (
            *integers("file", "pos", "n", "action"),
            *(replace(time, column_id=ADDED_FIELDS + n, nullable=True) for n, time in enumerate(times)),
        )
        for name, kept in ((VERSIONS, self.version_columns), (CHANGES, self.change_columns)):
            shape = ", ".join(f"{identifier(column.name)} {duckdb_type(column)}" for column in kept)
            con.execute(f"CREATE OR REPLACE TEMP TABLE {name} ({shape})")

    def _check_merge_key(self) -> None:
        names = self._source.column_names(*(self._request.merge_key or ()))
        if names and self._source.null_keys == "error":
            nulls = " OR ".join(f"{identifier(name)} IS NULL" for name in names)
            if self._con.execute(f"FROM {SOURCE} WHERE {nulls} LIMIT 1").fetchone():
                raise DataError(
                    f"A source row has NULL in a column of `merge_key` ({', '.join(names)}).",
                    remedy='Leave out such rows, or match NULL like other values with `null_keys="match"`.',
                )

    def _compared(self, given: Sequence[ColumnDef]) -> list[ColumnDef]:
        """Return the columns whose values make another version."""
        request = self._request
        if request.row_hash is not None:
            wanted = folded(self._source.column_names(request.row_hash)[0])
            return [column for column in given if folded(column.name) == wanted]
        marks = [name for name in (request.boundary, request.hard_delete) if isinstance(name, str)]
        not_compared = {*map(folded, (*self._source.keys, self.since.name, self.until.name, *marks))}
        return [column for column in given if folded(column.name) not in not_compared]

    # --- times -------------------------------------------------------------------------------------------------------

    def _check_times(self, given: Sequence[ColumnDef]) -> None:
        """Refuse data with columns that the merge sets, and times that the columns of the table cannot hold."""
        boundary = self._request.boundary
        for column in given:
            is_boundary = isinstance(boundary, str) and folded(column.name) == folded(boundary)
            if column.name in (self.since.name, self.until.name) and not is_boundary:
                raise DataError(
                    f"The data have a column `{column.name}`, which the merge sets.",
                    remedy="Name it in `boundary` if it says from when a row is valid; otherwise drop it.",
                )
        if duckdb_type(self.until) != self._kind:
            raise DataError(
                f"Column `{self.since.name}` is {self._kind}, and `{self.until.name}` is {duckdb_type(self.until)}.",
                remedy="Give both the same type: `alter_table(…, change_types={…})`.",
            )
        if isinstance(boundary, str):
            name = self._source.column_names(boundary)[0]
            kind = next(duckdb_type(column) for column in given if folded(column.name) == folded(name))
            value = identifier(name)
            wrong = f"{value} IS NULL OR CAST(TRY_CAST({value} AS {self._kind}) AS {kind}) IS DISTINCT FROM {value}"
            if self._is_temporal:
                wrong += f" OR NOT isfinite(TRY_CAST({value} AS {self._kind}))"
            if row := self._con.execute(f"SELECT {value} FROM {SOURCE} WHERE {wrong} LIMIT 1").fetchone():
                raise DataError(
                    f"Column `{name}` of the data has {row[0]}, which is no time that `{self.since.name}`"
                    f" ({self._kind}) can hold."
                )
        for argument, given_time in (("boundary", boundary), ("active", self._request.active)):
            if given_time is not None and not (argument == "boundary" and isinstance(given_time, str)):
                self._check_literal(argument, given_time)

    def _check_literal(self, argument: str, value: Any) -> None:
        query = f"SELECT {self._literal(value)} IS NOT NULL"
        if isinstance(value, datetime):
            query = f"SELECT CAST({self._literal(value)} AS TIMESTAMP WITH TIME ZONE) = {self._instant(value)}"
        try:
            holds = self._con.execute(query).fetchall()[0][0]
        except duckdb.Error:
            holds = False
        if not holds:
            raise ConfigError(f"`{argument}` = {value} is no time that `{self.since.name}` ({self._kind}) can hold.")

    @property
    def active(self) -> str:
        """The value of `until` of what is valid now."""
        value = self._request.active
        return f"CAST(NULL AS {self._kind})" if value is None else self._literal(value)

    @property
    def _time(self) -> str:
        """The time at which rows end that the data no longer have: the boundary, or that of the run."""
        if not self._is_temporal:
            raise ConfigError(
                f"Column `{self.since.name}` is {self._kind}, which is no time.",
                remedy="Name the column of the data that has the boundary in `boundary`, with `retire_absent` = False.",
            )
        boundary = self._request.boundary
        return self._literal(self._request.began if boundary is None or isinstance(boundary, str) else boundary)

    def _literal(self, value: Any) -> str:
        text = self._instant(value) if isinstance(value, datetime) else literal(str(value))
        return f"CAST({text} AS {self._kind})"

    def _instant(self, value: datetime) -> str:
        """Return a time with a zone; one without is in UTC."""
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return f"CAST({literal(str(moment))} AS TIMESTAMP WITH TIME ZONE)"

    @property
    def _is_temporal(self) -> bool:
        return self._kind.startswith("TIMESTAMP") or self._kind == "DATE"

    @property
    def _is_now(self) -> bool:
        """Whether events happen at the time of the run, and therefore after all that the table knows."""
        return self._request.boundary is None

    def _after(self, since: str, until: str) -> str:
        """Return the time of an event now, which is after all that is known of its key, on any clock."""
        is_exact = self._kind in ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
        return f"greatest({self._time}, {since}{' + INTERVAL 1 MICROSECOND' if is_exact else ''}, {until})"

    # --- versions ----------------------------------------------------------------------------------------------------

    def where(self, table: TableDef, target: TableDef) -> str | None:
        """Return the condition on all rows of the table that the merge depends on; None for all rows."""
        request, source, parts = self._request, self._source, []
        if not request.retire_absent or request.merge_key:
            ranges = [source.range(table, target, keys) for keys in (source.keys, request.merge_key) if keys]
            parts.append(f"({' OR '.join(ranges)})")
        if self._is_now:
            until = identifier(self.until.name)
            parts.append(f"({until} IS NULL OR {until} > {self._time})")
        return " AND ".join(parts) or None

    def versions_sql(self, number: int, rows: str, row_key: str, table: TableDef) -> str:
        """Return the query for the versions that the data may change, as `VERSIONS` has them.

        Args:
            number: Identifies where the rows are: the id of a data file, or a negative number for an inlined table.
            rows: The relation to put after FROM.
            row_key: The column that identifies a row in it.
            table: The table as it is; columns that it does not have yet are NULL.
        """
        has = {column.column_id for column in table.columns}
        named = "".join(
            f", CAST({f'target.{identifier(column.name)}' if column.column_id in has else 'NULL'}"
            f" AS {duckdb_type(column)}) AS {name}"
            for name, column in (self._keys | self._values | self._merge_key).items()
        )
        until = f"CAST(target.{identifier(self.until.name)} AS {self._kind})"
        if self._request.active is not None:
            until = f"nullif({until}, {self.active})"
        versions = (
            f"(SELECT target.{row_key} AS pos, target.{identifier(self.since.name)} AS since, {until} AS until{named}"
            f" FROM {rows} AS target) AS version"
        )
        joins, is_found = self._source.with_keys_sql("version", "known", _columns(self._keys))
        is_wanted = is_found
        if self._request.retire_absent:
            # A version that is valid at the time from which the data no longer have its row.
            absent = f"(since <= {self._time}) IS NOT FALSE AND (until > {self._time}) IS NOT FALSE"
            absent = "until IS NULL" if self._is_now else absent
            if self._merge_key:
                join, is_inside = self._source.with_keys_sql("version", "inside", _columns(self._merge_key))
                joins, absent = joins + join, f"{is_inside} AND {absent}"
            is_wanted = f"({is_found} OR ({absent}))"
        if self._is_now:
            is_wanted += f" AND (until IS NULL OR until > {self._time})"
        # A row that was never valid is no version. A row without a key has no timeline.
        is_wanted += " AND (since >= until) IS NOT TRUE"
        if self._source.null_keys == "error":
            is_wanted += "".join(f" AND version.{name} IS NOT NULL" for name in self._keys)
        return (
            f"SELECT {number} AS file, pos, since, until, {is_found} AS found"
            f"{''.join(f', version.{name} AS {name}' for name in (*self._keys, *self._values))}"
            f" FROM {versions}{joins} WHERE {is_wanted}"
        )

    # --- changes -----------------------------------------------------------------------------------------------------

    def plan_changes(self) -> None:
        """Fill `CHANGES`: what the source rows change in the versions."""
        keys = ", ".join(self._keys)
        self._refuse_overlaps()
        self._refuse_future(keys)
        by_key = f"OVER (PARTITION BY {keys} ORDER BY moment NULLS FIRST)"
        self._con.execute(f"DELETE FROM {CHANGES}")
        # Of what happens to a key at the same moment, the later kind counts: an end, a beginning, an event of the data.
        self._con.execute(f"""
            INSERT INTO {CHANGES}
            WITH points AS (
                SELECT {keys}, since AS moment, 1 AS kind, file, pos, NULL AS n, false AS ends, until,
                    {_packed(self._values)} AS value
                FROM {VERSIONS}
                UNION ALL BY NAME
                SELECT {keys}, until AS moment, 0 AS kind, true AS ends FROM {VERSIONS} WHERE until IS NOT NULL
                UNION ALL BY NAME {self._events(keys)}
            ), moments AS (
                SELECT {keys}, moment, max(file) AS file, max(pos) AS pos, max(n) AS n, max(until) AS until,
                    max(kind) AS kind, bool_or(kind = 1) AS is_version, arg_max(ends, kind) AS ends,
                    arg_max_null(value, kind) AS value, arg_max_null(value, kind) FILTER (kind = 1) AS old
                FROM points GROUP BY {keys}, moment
            ), ordered AS (
                SELECT *, lag(value) {by_key} AS before, coalesce(lag(ends) {by_key}, true) AS was_nothing FROM moments
            ), changing AS (
                SELECT *, lead(moment) {by_key} AS next, value IS DISTINCT FROM old AS is_other FROM ordered
                WHERE is_version OR kind = 0
                    OR NOT if(ends, was_nothing, NOT was_nothing AND value IS NOT DISTINCT FROM before)
            )
            SELECT file, pos, CASE WHEN NOT is_version OR is_other THEN n END, CASE
                WHEN is_version AND ends THEN {DELETE}
                WHEN is_version AND (is_other OR next IS DISTINCT FROM until) THEN {UPDATE}
                WHEN NOT is_version AND NOT ends THEN {INSERT} END AS action, moment, next
            FROM changing WHERE action IS NOT NULL
        """)

    def _events(self, keys: str) -> str:
        """Return the query for the events of the data."""
        source, boundary = self._source, self._request.boundary
        rows = f"{SOURCE} AS source"
        latest = f"(SELECT {keys}, max(since) AS since, max(until) AS until FROM {VERSIONS} GROUP BY {keys}) AS latest"
        if isinstance(boundary, str):
            moment = f"CAST(source.{identifier(source.column_names(boundary)[0])} AS {self._kind})"
        elif self._is_now:
            same = (f"source.{identifier(key.name)} IS NOT DISTINCT FROM latest.{k}" for k, key in self._keys.items())
            moment, rows = self._after("since", "until"), f"{rows} LEFT JOIN {latest} ON {' AND '.join(same)}"
        else:
            moment = self._time
        named = ", ".join(f"source.{identifier(key.name)} AS {name}" for name, key in self._keys.items())
        values = _packed({name: f"source.{identifier(column.name)}" for name, column in self._values.items()})
        events = (
            f"SELECT {named}, {moment} AS moment, 2 AS kind, source.{source.number} AS n,"
            f" {f'source.{source.deleted}' if source.deleted else 'false'} AS ends, {values} AS value FROM {rows}"
        )
        if not self._request.retire_absent:
            return events
        moment = self._after("since", "until") if self._is_now else self._time
        return (
            f"{events} UNION ALL BY NAME"
            f" SELECT {keys}, {moment} AS moment, 2 AS kind, true AS ends FROM {VERSIONS} WHERE NOT found"
        )

    def _refuse_future(self, keys: str) -> None:
        """Refuse ends that a forgotten `active` would explain, and events that are not before `active`."""
        active = self._request.active
        if active is not None:
            query = f"SELECT moment FROM ({self._events(keys)}) WHERE moment >= {self.active} LIMIT 1"
            if row := self._con.execute(query).fetchone():
                raise DataError(f"The data are valid from {row[0]}, which is not before `active` = {active}.")
        elif self._is_now:
            query = f"SELECT until FROM {VERSIONS} WHERE until > {self._time} + INTERVAL 1 DAY LIMIT 1"
            if row := self._con.execute(query).fetchone():
                raise DataError(
                    f"A row of the table is valid until {row[0]}, which is in the future.",
                    remedy="If it is valid now, pass that time as `active`; else give a `boundary`.",
                )

    def _refuse_overlaps(self) -> None:
        """Refuse a table in which two rows of a key are valid at the same time."""
        keys = ", ".join(self._keys)
        by_key = f"OVER (PARTITION BY {keys} ORDER BY since NULLS FIRST)"
        query = (
            f"SELECT {keys} FROM (SELECT {keys}, until, lead(since) {by_key} AS next, lead(pos) {by_key} AS other"
            f" FROM {VERSIONS}) WHERE other IS NOT NULL AND (until <= next) IS NOT TRUE LIMIT 1"
        )
        if row := self._con.execute(query).fetchone():
            values = ", ".join(f"{key.name} = {value!r}" for key, value in zip(self._keys.values(), row, strict=True))
            raise DataError(
                f"Two rows of the table have the same keys and are valid at the same time: {values}.",
                remedy="End one of them before the other begins, or delete it.",
            )


def _columns(named: Mapping[str, ColumnDef]) -> dict[str, str]:
    """Return the columns of the data by the names that versions give them."""
    return {name: column.name for name, column in named.items()}


def _packed(values: Mapping[str, Any]) -> str:
    """Return values as one, which says whether two versions are the same.

    Args:
        values: The SQL of each value, by name; a column stands for its name.
    """
    pairs = (f"{name} := {name if isinstance(value, ColumnDef) else value}" for name, value in values.items())
    return f"struct_pack({', '.join(pairs)})" if values else "true"
