"""Fetch the live files of a table at a snapshot, with their deletions and partition values, pruned in one query."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb

from ducklake_orch.catalog.metadata import (
    DataFile,
    DeleteFile,
    Metadata,
    TableHistory,
    as_listed,
    deletions_sql,
    live,
    maybe_int,
    text,
)
from ducklake_orch.catalog.scan.column_bounds import Facts, partition_values_sql
from ducklake_orch.catalog.scan.expression_bounds import MAYBE, Expressions
from ducklake_orch.catalog.scan.file_rows import DELETE_FILE, FILE, FileRows
from ducklake_orch.catalog.scan.indexed_files import ids_by_index
from ducklake_orch.catalog.scan.predicate import OrderKey, Predicate
from ducklake_orch.catalog.scan.pruning import FileConditions
from ducklake_orch.errors import StatementError

_FETCHED_AT_ONCE = 10_000


class LiveFiles:
    """The data files that are live at a snapshot.

    Args:
        history: The table and its past.
        at: The snapshot.
        deletions: The name of the table of inlined deletions, if it exists.
        predicate: A condition; files without a row that can meet it are left out.
    """

    def __init__(
        self, history: TableHistory, at: int, deletions: str | None, predicate: Predicate | None = None
    ) -> None:
        self.history = history
        self.at = at
        self.deletions = deletions
        self._next_file_id = next_file_id(history.metadata, at)
        self._specs = {spec.partition_id: spec for spec in history.specs}
        self._keys = max((len(spec.fields) for spec in history.specs), default=0)
        self._facts = Facts(history.specs, history.types)
        self._expressions = Expressions(history.metadata.con, history.table.columns, self._facts)
        conditions = FileConditions(self._expressions)
        self._may = conditions.may_match(predicate.tree) if predicate else "true"
        self._all = conditions.all_match(predicate.tree) if predicate else "true"
        self._first = "true"

    def keep_first(self, key: OrderKey, limit: int) -> None:
        """Leave out files that cannot hold any of the first rows of an order.

        A file without deletions, whose rows all match and all exist at the snapshot, certainly contributes its
        `record_count` rows, none of which lies after the far bound of its values. If such files contribute `limit` rows
        that come before all rows of another file, that file is left out.
        """
        x = self._expressions.domain(key.tree)
        if x is None:
            return
        near, far, best, before = (x.high, x.low, "max", ">=") if key.descending else (x.low, x.high, "min", "<=")
        brings_nulls = "false" if key.nulls == "last" else x.null
        certain = f"all_match AND deletes IS NULL AND inlined_deletes = 0 AND coalesce(partial_max <= {self.at}, true)"
        # NULLs come first or last only if the key says so; otherwise the engine's settings decide, so rows of a file
        # that may hold NULLs do not count.
        rows = "record_count" if key.nulls == "first" else f"CASE WHEN {x.null} THEN 0 ELSE record_count END"
        # The default window frame sums up to the current row and its equals.
        ahead = f"sum({rows}) OVER (ORDER BY {far} {'DESC' if key.descending else 'ASC'})"
        sums = f"SELECT {far} AS edge, {ahead} AS rows FROM joined WHERE {certain} AND {far} IS NOT NULL"
        edge = f"(SELECT {best}(edge) FROM ({sums}) WHERE rows >= {limit})"
        self._first = f"coalesce({near} {before} {edge}, true) OR {brings_nulls}"

    def fetch(self, *, unclear: bool = False) -> Iterator[tuple[DataFile, bool]]:
        """Return the files, and for each whether all of its rows certainly meet the predicate.

        Args:
            unclear: Whether to return only files whose number of rows at the snapshot the catalog does not tell.
        """
        columns = [*FILE, *(f"part_{n}" for n in range(self._keys)), "deletes", "inlined_deletes", "all_match"]
        condition = f"NOT {self._clear}" if unclear else self._first
        cursor = self._run(f"SELECT {', '.join(columns)} FROM joined WHERE {condition} ORDER BY data_file_id")
        while rows := cursor.fetchmany(_FETCHED_AT_ONCE):
            for row in rows:
                values = dict(zip(columns, row, strict=True))
                yield self._file(values), bool(values["all_match"])

    def count(self) -> int:
        """Return the total number of rows of those files whose number of rows the catalog tells."""
        row = self._run(
            "SELECT coalesce(sum(record_count - coalesce(deletes[1].delete_count, 0) - inlined_deletes), 0)"
            f" FROM joined WHERE {self._clear}"
        ).fetchone()
        return int(row[0]) if row else 0

    def partitions(self) -> list[tuple[int | None, tuple[str | None, ...], int, int, int]]:
        """Return each partition's spec and values, and its numbers of rows, files and bytes."""
        keys = ["partition_id", *(f"part_{n}" for n in range(self._keys))]
        deleted = "coalesce(list_sum(list_transform(deletes, lambda d: d.delete_count)), 0) + inlined_deletes"
        cursor = self._run(
            f"SELECT {', '.join(keys)}, sum(record_count - ({deleted}))::BIGINT, count(*), sum(file_size_bytes)::BIGINT"
            f" FROM joined GROUP BY {', '.join(keys)} ORDER BY min(data_file_id)"
        )
        return [
            (maybe_int(spec), self._values(spec, values), rows, files, size)
            for spec, *values, rows, files, size in cursor.fetchall()
        ]

    @property
    def _clear(self) -> str:
        """The SQL for whether the catalog tells a file's number of rows: nothing in it is later than the snapshot."""
        unambiguous = f"len(deletes) = 1 AND deletes[1].delete_file_id < {self._next_file_id}"
        return f"(coalesce(partial_max <= {self.at}, true) AND coalesce({unambiguous}, true))"

    def _run(self, select: str) -> duckdb.DuckDBPyConnection:
        metadata = self.history.metadata
        try:
            return metadata.con.execute(f"WITH {self._joined_sql()} {select}")
        except (duckdb.ConversionException, duckdb.OutOfRangeException) as error:
            failure = StatementError(f"A constant in the condition does not fit its column: {error}")
        raise failure

    def _joined_sql(self) -> str:
        metadata = self.history.metadata
        rows, is_live = self._rows(), live(self.at)
        columns, joins = ["f.*"], []
        if of_columns := self._facts.uses():
            statistics = self._facts.statistics_sql(rows.source("ducklake_file_column_stats", of_columns))
            joins.append(f"LEFT JOIN ({statistics}) USING (data_file_id)")
        if self._specs:
            values, keys = partition_values_sql(rows.source("ducklake_file_partition_value"), self.history.specs)
            joins.append(f"LEFT JOIN ({values}) p USING (data_file_id)")
            columns += [f"p.part_{n}" for n in range(keys)]
        columns += self._facts.columns_sql()
        parts = ", ".join(f"{column}: {column}" for column in DELETE_FILE)
        deletes = (
            f"SELECT data_file_id, list({{{parts}}} ORDER BY delete_file_id) AS deletes"
            f" FROM {rows.source('ducklake_delete_file', is_live)} GROUP BY data_file_id"
        )
        inlined = "SELECT NULL::BIGINT AS data_file_id, 0 AS n WHERE false"
        if self.deletions:
            positions = deletions_sql(metadata, self.deletions, self.at)
            inlined = f"SELECT data_file_id, count(*) AS n FROM ({positions}) GROUP BY data_file_id"
        return f"""
            known AS (
                SELECT {", ".join(columns)}
                FROM (SELECT {", ".join(FILE)} FROM {rows.source("ducklake_data_file", is_live)}) f {" ".join(joins)}),
            joined AS (
                SELECT k.*, d.deletes, coalesce(i.n, 0) AS inlined_deletes, {self._all} AS all_match
                FROM (SELECT * FROM known WHERE {self._may}) k
                LEFT JOIN ({deletes}) d USING (data_file_id) LEFT JOIN ({inlined}) i USING (data_file_id))"""

    def _rows(self) -> FileRows:
        metadata = self.history.metadata
        ids = None if self._may == MAYBE else ids_by_index(self.history, self._facts, self._may)
        return FileRows(metadata, self.history.table.table_id, ids)

    def _file(self, row: Mapping[str, Any]) -> DataFile:
        folder = self.history.table.folder
        return data_file(
            self.history,
            row,
            values=self._values(row["partition_id"], [row[f"part_{n}"] for n in range(self._keys)]),
            deletes=tuple(delete_file(folder, delete, self._next_file_id) for delete in row["deletes"] or ()),
            inlined_deletes=int(row["inlined_deletes"]),
        )

    def _values(self, partition_id: int | None, values: Sequence[Any]) -> tuple[str | None, ...]:
        """Return the values of a file's own spec; other specs may have more keys."""
        spec = None if partition_id is None else self._specs.get(int(partition_id))
        return tuple(map(text, values[: len(spec.fields)])) if spec else ()


def data_file(
    history: TableHistory,
    row: Mapping[str, Any],
    *,
    values: tuple[str | None, ...] = (),
    deletes: tuple[DeleteFile, ...] = (),
    inlined_deletes: int = 0,
) -> DataFile:
    """Build a data file from a row with the columns `FILE`."""
    begin = int(row["begin_snapshot"])
    return DataFile(
        data_file_id=int(row["data_file_id"]),
        path=_path(history.table.folder, row),
        file_size=int(row["file_size_bytes"]),
        footer_size=row["footer_size"],
        record_count=int(row["record_count"]),
        begin_snapshot=begin,
        row_id_start=row["row_id_start"],
        partition_id=None if row["partition_id"] is None else int(row["partition_id"]),
        partition_values=values,
        mapping_id=row["mapping_id"],
        partial_max=row["partial_max"],
        encryption_key=text(row["encryption_key"]),
        schema_version=history.version_at(begin),
        deletes=deletes,
        inlined_deletes=inlined_deletes,
    )


def delete_file(folder: str, row: Mapping[str, Any], next_file_id: int) -> DeleteFile:
    """Build a delete file from a row with the columns `DELETE_FILE`.

    Args:
        folder: The table's folder.
        row: The row.
        next_file_id: The `next_file_id` of the requested snapshot; files with this id or a higher one are later.
    """
    return DeleteFile(
        delete_file_id=int(row["delete_file_id"]),
        path=_path(folder, row),
        delete_count=int(row["delete_count"]),
        begin_snapshot=int(row["begin_snapshot"]),
        end_snapshot=row["end_snapshot"],
        partial_max=row["partial_max"],
        file_size=int(row["file_size_bytes"]),
        footer_size=row["footer_size"],
        format=text(row["format"]) or "parquet",
        encryption_key=text(row["encryption_key"]),
        later=int(row["delete_file_id"]) >= next_file_id,
    )


def _path(folder: str, row: Mapping[str, Any]) -> str:
    path = text(row["path"]) or ""
    return f"{folder}{path}" if row["path_is_relative"] else as_listed(path)


def next_file_id(metadata: Metadata, at: int) -> int:
    """Return the id of the first file after a snapshot; 0 if the snapshot has expired."""
    name = metadata.dialect.table("ducklake_snapshot")
    sql = f"select next_file_id from {name} where snapshot_id = {at}"
    rows = metadata.rows(metadata.dialect.query(sql))
    return int(rows[0][0]) if rows else 0
