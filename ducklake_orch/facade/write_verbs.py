"""Verbs that bring rows into tables: from frames, by keys, and from Parquet files."""

from collections.abc import Mapping, Sequence
from datetime import date
from inspect import signature
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from ducklake_orch.config.nearest import nearest
from ducklake_orch.errors import ConfigError
from ducklake_orch.facade.lake_base import LakeBase
from ducklake_orch.results import CommitInfo, WriteResult


class MergeArguments(TypedDict, total=False):
    """The arguments of `merge` that `write(mode="merge")` takes, too."""

    keys: Sequence[str] | None
    strategy: str | None
    when_matched: str | Mapping[str, str] | None
    matched_condition: str | None
    delete_condition: str | None
    when_not_matched: str | None
    when_not_matched_by_source: str | None
    merge_key: Sequence[str] | None
    valid_from: str | None
    valid_to: str | None
    boundary: str | date | None
    active: Any
    row_hash: str | None
    retire_absent: bool | None
    hard_delete: str | None
    deduplicate_by: Sequence[str] | None
    null_keys: str | None


class WriteVerbs(LakeBase):
    """Write, merge and add rows."""

    def write(
        self,
        data: Any,
        table: str,
        *,
        mode: str,
        partition_by: Sequence[str] | None = None,
        sort_by: Sequence[str] | None = None,
        where: str | None = None,
        outside: str = "error",
        schema_evolution: str = "error",
        engine: str = "auto",
        distribution: str = "auto",
        inline: str = "never",
        expect_snapshot: int | None = None,
        idempotency_key: str | None = None,
        commit: CommitInfo | None = None,
        **merging: Unpack[MergeArguments],
    ) -> WriteResult:
        """Write data to a table in one snapshot, exactly once. A table that does not exist is created.

        Columns are matched by name; a column that the data lack gets its default. The arguments cover all modes; most
        calls give `mode` and one or two more.

        Args:
            data: A Spark DataFrame, a pyarrow.Table, RecordBatchReader or dataset, a pandas or Polars frame, a DuckDB
                relation, anything else that offers an Arrow stream, or a list or generator of dicts.
            table: `table` or `schema.table`.
            mode: `append`, `overwrite` (all rows), `overwrite_partitions` (each partition that the data have rows for),
                `replace_where` (the rows that match `where`), `merge` (the rows that have the same `keys`), `error` or
                `ignore` (only if the table does not exist).
            partition_by: Keys of a new table, such as `year(ts)`; for an existing table they must be its own.
            sort_by: Sort keys of a new table; for an existing table they must be its own.
            where: The rows that `replace_where` replaces, as a condition in DuckDB's SQL.
            outside: What happens to rows of the data that do not match `where`: `error`, or `drop`.
            schema_evolution: `error`, `add` (new columns), or `promote` (new columns, wider types).
            engine: Writer of the files of a Spark DataFrame: `duckdb` in its tasks, `native` (Spark's own Parquet
                writer, for tables without partitions and types that it writes right), or `auto`.
            distribution: How a Spark DataFrame is shuffled first, so that each partition is written to a small number
                of files: `none`, `hash`, `range`, or `auto`.
            inline: `never`, or `auto`: rows up to the table's `data_inlining_row_limit` stay in the catalog, where only
                DuckLake's own readers see them, until a flush writes them to files. Not on MySQL, nor nested columns.
            expect_snapshot: Fail when the data to replace have changed since this snapshot.
            idempotency_key: Identifies the work across retries: an append that is already committed is not repeated,
                nor is a merge whose repetition would change more.
            commit: Author, message and extra of the snapshot.
            **merging: For mode `merge`: the arguments of `merge`, which is the same verb.

        Examples:
            >>> more = pa.table({"id": [4], "region": ["us"], "price": [40.0]})
            >>> lake.write(more, "orders", mode="append", idempotency_key="run 7").rows_written
            1
            >>> lake.write(more, "orders", mode="append", idempotency_key="run 7").replayed  # a retry
            True
            >>> lake.write(more, "orders", mode="replace_where", where="region = 'us'").rows_removed
            2
        """
        from ducklake_orch.catalog.verbs import WriteRequest, write_table
        from ducklake_orch.engine.quoting import table_name
        from ducklake_orch.frames import refuse_for_merge, rows_of

        if unknown := next((name for name in merging if name not in MergeArguments.__annotations__), None):
            known = [name for name in signature(self.write).parameters if name != "merging"]
            remedy = nearest(unknown, [*known, *MergeArguments.__annotations__])
            raise ConfigError(f"`write` has no argument `{unknown}`.", remedy=remedy)
        given = {name: value for name, value in merging.items() if value is not None}
        if mode == "merge":
            refuse_for_merge(where=where, outside=outside, inline=inline, distribution=distribution)
            common: dict[str, Any] = {
                "keys": (),
                "partition_by": partition_by,
                "sort_by": sort_by,
                "schema_evolution": schema_evolution,
            }
            common |= {"engine": engine, "expect_snapshot": expect_snapshot, "idempotency_key": idempotency_key}
            return self.merge(data, table, commit=commit, **common | given)
        if given:
            name = next(iter(given))
            raise ConfigError(
                f"Mode `{mode}` and `{name}` cannot be combined.", remedy=f"`{name}` is an argument of mode `merge`."
            )
        request = WriteRequest(
            table=table_name(table),
            mode=mode,
            partition_by=partition_by,
            sort_by=sort_by,
            where=where,
            outside=outside,
            schema_evolution=schema_evolution,
            inline=inline,
            expect_snapshot=expect_snapshot,
            idempotency_key=idempotency_key,
            commit=commit or CommitInfo(),
        )
        rows = rows_of(data, engine=engine, distribution=distribution)
        return write_table(self.config, rows, request)

    def merge(
        self,
        data: Any,
        table: str,
        keys: Sequence[str] = (),
        *,
        strategy: str = "upsert",
        when_matched: str | Mapping[str, str] = "update",
        matched_condition: str | None = None,
        delete_condition: str | None = None,
        when_not_matched: str = "insert",
        when_not_matched_by_source: str = "keep",
        merge_key: Sequence[str] | None = None,
        valid_from: str = "valid_from",
        valid_to: str = "valid_to",
        boundary: str | date | None = None,
        active: Any = None,
        row_hash: str | None = None,
        retire_absent: bool = True,
        hard_delete: str | None = None,
        deduplicate_by: Sequence[str] | None = None,
        null_keys: str = "error",
        schema_evolution: str = "error",
        partition_by: Sequence[str] | None = None,
        sort_by: Sequence[str] | None = None,
        engine: str = "auto",
        expect_snapshot: int | None = None,
        idempotency_key: str | None = None,
        commit: CommitInfo | None = None,
    ) -> WriteResult:
        """Merge data into a table by keys, in one snapshot. A table that does not exist is created.

        It has more than ten arguments because SQL's MERGE has as many clauses. Each strategy takes some of them.

        Args:
            data: As for `write`.
            table: `table` or `schema.table`.
            keys: The columns that identify a row. No two rows of the data may have the same keys, except in
                `delete-insert`. In `scd2` without keys, a row is identified by all of its values.
            strategy: `upsert` (rows of the table get the values of the data, other rows of the data are inserted),
                `insert-only` (rows of the table stay as they are), `delete-insert` (all rows of the table that have
                keys of the data are deleted, then all rows of the data are inserted), or `scd2` (a row that changes
                ends and its new version begins: the table keeps all versions).
            when_matched: For `upsert`. What happens to a row of the table that the data have a row for: `update` (it
                gets their values), `keep`, `delete`, or `{column: expression}` over `source.column` and
                `target.column`.
            matched_condition: For `upsert`. Over `source` and `target`; a matched row for which it does not hold stays
                as it is.
            delete_condition: For `upsert`. Over `source` and `target`; a matched row for which it holds is deleted, and
                a row of the data without a match is not inserted.
            when_not_matched: For `upsert`. What happens to a row of the data that the table has no row for: `insert` or
                `ignore`.
            when_not_matched_by_source: For `upsert`. What happens to a row of the table that the data have no row for:
                `keep` or `delete`.
            merge_key: For `delete-insert`, further columns: rows that match them are deleted, too. For `scd2`, only
                rows that match them can end because the data do not have them, for example those of a day.
            valid_from: For `scd2`, the column from when a version is valid; NULL means that no beginning is known.
            valid_to: For `scd2`, the column until when it is valid, exclusive.
            boundary: For `scd2`, when the data became valid: a time, or the column of the data that has it. Data older
                than the current version are put in their place. By default, the time of the run.
            active: For `scd2`, the value of `valid_to` in current versions, such as `9999-12-31`; by default NULL.
            row_hash: For `scd2`, the column that tells whether a row has changed; by default, all columns do.
            retire_absent: For `scd2`, whether current rows end that the data do not have.
            hard_delete: The column of the data that marks rows to delete: those in which it is true, or, if it is no
                BOOLEAN, not NULL. In `scd2` their versions end. It is stored only if the table has it. Not for
                `insert-only`.
            deduplicate_by: Of rows of the data with the same keys, the first in this order is taken, for example
                `["changed_at DESC"]`.
            null_keys: What a NULL in a key means: `error`, or `match` (NULL equals NULL).
            schema_evolution: `error`, `add` (new columns), or `promote` (new columns, wider types).
            partition_by: Keys of a new table; for an existing table they must be its own.
            sort_by: Sort keys of a new table; for an existing table they must be its own.
            engine: Engine of the matching: `duckdb` in this process, `spark`, or `auto`, which decides by the bytes to
                read.
            expect_snapshot: Fail when rows that the merge may change have changed since this snapshot.
            idempotency_key: Identifies the work across retries: a committed merge whose repetition would change more
                is not repeated.
            commit: Author, message and extra of the snapshot.

        Examples:
            >>> corrections = pa.table({"id": [3, 4], "region": ["eu", "us"], "price": [33.0, 44.0]})
            >>> _ = lake.merge(corrections, "orders", ["id"])
            >>> sorted(lake.read("orders")["price"].to_pylist())
            [10.0, 20.0, 33.0, 44.0]
            >>> from datetime import date
            >>> for day, price in ((date(2026, 1, 1), 10.0), (date(2026, 1, 2), 12.0)):
            ...     _ = lake.merge([{"sku": "a", "price": price}], "prices", ["sku"], strategy="scd2", boundary=day)
            >>> for version in lake.read("prices").sort_by("valid_from").to_pylist():
            ...     print(version["price"], version["valid_from"], version["valid_to"])
            10.0 2026-01-01 2026-01-02
            12.0 2026-01-02 None
        """
        from ducklake_orch.catalog.verbs import merge_rows, request_for
        from ducklake_orch.engine.quoting import table_name
        from ducklake_orch.frames import is_spark, spool_of

        request = request_for(
            strategy,
            {
                "table": table_name(table),
                "keys": keys,
                "when_matched": when_matched,
                "matched_condition": matched_condition,
                "delete_condition": delete_condition,
                "when_not_matched": when_not_matched,
                "when_not_matched_by_source": when_not_matched_by_source,
                "merge_key": merge_key,
                "valid_from": valid_from,
                "valid_to": valid_to,
                "boundary": boundary,
                "active": active,
                "row_hash": row_hash,
                "retire_absent": retire_absent,
                "hard_delete": hard_delete,
                "deduplicate_by": deduplicate_by,
                "null_keys": null_keys,
                "schema_evolution": schema_evolution,
                "partition_by": partition_by,
                "sort_by": sort_by,
                "engine": engine,
                "expect_snapshot": expect_snapshot,
                "idempotency_key": idempotency_key,
                "commit": commit or CommitInfo(),
            },
        )
        spark = getattr(data, "sparkSession", None) if is_spark(data) else None
        return merge_rows(
            self.config, spool_of(self.config, data, request.table), request, self._workers(spark, engine)
        )

    def add_files(
        self,
        table: str,
        paths: str | Path | Sequence[str | Path],
        *,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        copy: bool = False,
        dry_run: bool = False,
        verify: Literal["pages", "footer"] = "pages",
        idempotency_key: str | None = None,
        commit: CommitInfo | None = None,
    ) -> WriteResult:
        """Add Parquet files that another program wrote to a table, in one snapshot.

        Columns are matched by name, in any case of letters, or by field id where the names agree. The lake owns the
        files from then on: it deletes them once no snapshot needs them.

        Args:
            table: `table` or `schema.table`.
            paths: The files, or patterns such as `s3://bucket/folder/*.parquet`.
            allow_missing: Whether files may lack columns of the table, which then read as their default, else NULL.
            ignore_extra: Whether files may have columns that the table does not have.
            copy: Copy the files into the lake and leave the originals untouched.
            dry_run: Only check the files; the result reports what would be added.
            verify: What is read first: `pages` reads all values, because a file with a broken page makes the whole
                table unreadable; `footer` reads the footers only, which is fast, for files that are known to be intact.
            idempotency_key: Identifies the work across retries; committed work is not repeated.
            commit: Author, message and extra of the snapshot.

        Examples:
            >>> import pyarrow.parquet as pq
            >>> pq.write_table(orders, "old.parquet")
            >>> lake.add_files("orders", "old.parquet", copy=True).rows_written
            3
        """
        from ducklake_orch.catalog.ingest import AddRequest, add_data_files
        from ducklake_orch.engine.quoting import table_name

        request = AddRequest(
            table=table_name(table),
            paths=paths,
            allow_missing=allow_missing,
            ignore_extra=ignore_extra,
            copy=copy,
            dry_run=dry_run,
            verify=verify,
            idempotency_key=idempotency_key,
            commit=commit or CommitInfo(),
        )
        return add_data_files(self.config, request)
