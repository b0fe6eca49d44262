"""The facade: one object that opens a lake and does everything with it."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from ducklake_orch.config.catalogs import CATALOGS, Catalog
from ducklake_orch.config.lake import Scalar
from ducklake_orch.config.units import parse_duration, read_argument
from ducklake_orch.errors import LakeNotFoundError
from ducklake_orch.past import LakePast
from ducklake_orch.results import (
    CommitInfo,
    ExecuteResult,
    FsckReport,
    LakeEntry,
    Option,
    Snapshot,
    Table,
    WriteResult,
)
from ducklake_orch.row_verbs import RowVerbs
from ducklake_orch.streams import LakeStreams
from ducklake_orch.upkeep import Upkeep

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from ducklake_orch.table import LakeTable


class DuckLake(RowVerbs, LakePast, LakeStreams, Upkeep):
    """A DuckLake: a SQL catalog and its data files.

    Opening one does nothing yet; each call connects, works and lets go (server catalogs keep a pool of connections).

    Args:
        config: The lake's configuration.

    Attributes:
        config: The lake's configuration.
        origins: Where each value of the configuration came from, by its path.
    """

    # --- SQL -----------------------------------------------------------------------------------------------------

    def execute(
        self,
        commands: str | Sequence[str],
        atomic: bool = False,
        on_error: Literal["stop", "continue"] = "stop",
        max_rows: int | None = 1000,
        params: Mapping[str, Any] | Sequence[Any] | None = None,
        read_only: bool = False,
        snapshot: int | None = None,
        as_of: datetime | str | None = None,
        timeout: float | str | timedelta | None = None,
        force: bool = False,
        use: str | None = None,
        commit: CommitInfo | None = None,
    ) -> ExecuteResult:
        """Run SQL commands and report each of them.

        Writes wait for their turn in the catalog's queue and are tried again after transient failures, exactly once.

        Args:
            commands: A statement, a script, or a list of either.
            atomic: Run all of them in one transaction: one snapshot, or nothing.
            on_error: Whether later commands run after one failed.
            max_rows: Rows kept of each result; None for all.
            params: Values of placeholders: a sequence for `?`, a mapping for `$name`.
            read_only: Refuse writes.
            snapshot: See the lake as of this snapshot.
            as_of: See the lake as of this time.
            timeout: Seconds, or a duration such as `5m`, for all commands together.
            force: Let maintenance calls pass below their retention floors.
            use: Another lake of the same configuration file.
            commit: Author, message and extra of the snapshots.

        Raises:
            DuckLakeOrchError: Only when the lake cannot be opened; a failing command is reported in the result.
        """
        from ducklake_orch.engine.dialects import dialect_of
        from ducklake_orch.engine.execute import Request, execute, only_reads

        lake = self.sibling(use) if use is not None and use != self.config.name else self
        seconds = None if timeout is None else read_argument("timeout", parse_duration, timeout).total_seconds()
        request = Request(atomic, on_error, max_rows, params, seconds, force, commit)
        file = lake.config.catalog_file
        if file is not None and file.exists() and dialect_of(lake.config).attached_by_one_process:
            # The file is open to one writer or to many readers.
            read_only = read_only or only_reads(commands)
        return execute(lake.config, commands, request, lake._pin(read_only, snapshot, as_of))

    # --- tables --------------------------------------------------------------------------------------------------

    def create_table(
        self,
        table: str,
        schema: Any,
        *,
        partition_by: Sequence[str] | None = None,
        sort_by: Sequence[str] | None = None,
        comment: str | None = None,
        options: Mapping[str, Scalar] | None = None,
        if_not_exists: bool = False,
        commit: CommitInfo | None = None,
    ) -> None:
        """Create a table, its schema if needed, and its layout, in one snapshot.

        Args:
            table: `table` or `schema.table`.
            schema: A pyarrow.Schema, a Spark StructType, or `{name: DuckDB type}`; ` NOT NULL` may follow a type.
            partition_by: Keys such as `year(ts)`, `bucket(16, id)`, `region`.
            sort_by: Keys such as `ts desc nulls last`, `lower(region)`.
            comment: What the table is for.
            options: Persisted options of this table.
            if_not_exists: Leave a table of that name as it is.
            commit: Author, message and extra of the snapshot.
        """
        from ducklake_orch.engine.quoting import table_name
        from ducklake_orch.engine.tables import create_table

        create_table(
            self.config,
            table_name(table),
            schema,
            partition_by=partition_by,
            sort_by=sort_by,
            comment=comment,
            options=options or {},
            if_not_exists=if_not_exists,
            info=commit or CommitInfo(),
        )

    @overload
    def read(
        self,
        table: str,
        spark: None = None,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        snapshot: int | None = None,
        as_of: datetime | str | None = None,
    ) -> "pa.Table": ...

    @overload
    def read(
        self,
        table: str,
        spark: "SparkSession",
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        snapshot: int | None = None,
        as_of: datetime | str | None = None,
        engine: Literal["auto", "native", "duckdb"] = "auto",
    ) -> "DataFrame": ...

    def read(
        self,
        table: str,
        spark: "SparkSession | None" = None,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        snapshot: int | None = None,
        as_of: datetime | str | None = None,
        engine: str = "auto",
    ) -> "DataFrame | pa.Table":
        """Read a table at one snapshot: a lazy Spark DataFrame, or without `spark` a pyarrow.Table.

        Args:
            table: `table` or `schema.table`; without `spark` also a view.
            spark: The session, classic or Connect.
            columns: Names of the columns to return; by default all.
            where: A condition in DuckDB's SQL; files that cannot meet it are not read.
            snapshot: The snapshot to read; by default the latest.
            as_of: The time to read at.
            engine: What reads the files in Spark: `native` (Spark's own Parquet reader, wherever it reads right),
                `duckdb` in its tasks, or `auto`.
        """
        from ducklake_orch.catalog.read_arrow import Selection, read_arrow
        from ducklake_orch.engine.quoting import table_name

        selection = Selection(table_name(table), columns, where, snapshot, as_of)
        if spark is None:
            return read_arrow(self, selection)
        from ducklake_orch.spark.read import read_table

        return read_table(self, spark, selection, engine)

    def read_batches(
        self,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        snapshot: int | None = None,
        as_of: datetime | str | None = None,
        batch_size: int = 100_000,
    ) -> "pa.RecordBatchReader":
        """Read a table at one snapshot as a stream, which keeps a connection until it is read to its end or closed.

        Args:
            table: `table` or `schema.table`, or a view.
            columns: Names of the columns to return; by default all.
            where: A condition in DuckDB's SQL.
            snapshot: The snapshot to read; by default the latest.
            as_of: The time to read at.
            batch_size: Rows in a batch, about.
        """
        from ducklake_orch.catalog.read_arrow import Selection, read_batches
        from ducklake_orch.engine.quoting import table_name

        return read_batches(self, Selection(table_name(table), columns, where, snapshot, as_of), batch_size)

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
        """Add Parquet files that others wrote to a table, in one snapshot.

        Columns are matched by name, whatever their case, or by field id where the names agree. Files become the lake's
        own: it deletes them when no snapshot needs them any more.

        Args:
            table: `table` or `schema.table`.
            paths: The files, or patterns such as `s3://bucket/folder/*.parquet`.
            allow_missing: Whether files may lack columns of the table, which then read as their default, else NULL.
            ignore_extra: Whether files may have columns that the table does not have.
            copy: Bring in copies and leave the files themselves alone.
            dry_run: Only check the files; the result says what would be added.
            verify: What is read first: `pages` reads all values, because a file with a broken page makes the whole
                table unreadable; `footer` reads the footers only, which is fast, for files that are known to be whole.
            idempotency_key: The same for every attempt at the same work, which is then done once.
            commit: Author, message and extra of the snapshot.
        """
        from ducklake_orch.catalog.register import AddRequest, add_files
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
        return add_files(self.config, request)

    def drop_table(self, table: str, *, if_exists: bool = False, commit: CommitInfo | None = None) -> None:
        """Drop a table; its history stays until its snapshots expire."""
        from ducklake_orch.engine.quoting import table_name
        from ducklake_orch.engine.tables import run_statements

        maybe = "IF EXISTS " if if_exists else ""
        drop = f"DROP TABLE {maybe}{table_name(table).sql(self.config.alias)}"
        run_statements(self.config, f"dropping table `{table}`", [drop], commit)

    def truncate(self, table: str, *, commit: CommitInfo | None = None) -> None:
        """Remove all rows of a table; earlier snapshots keep them."""
        from ducklake_orch.engine.quoting import table_name
        from ducklake_orch.engine.tables import run_statements

        delete = f"DELETE FROM {table_name(table).sql(self.config.alias)}"
        run_statements(self.config, f"truncating table `{table}`", [delete], commit)

    def exists(self, table: str) -> bool:
        """Whether the lake has a table of that name."""
        from ducklake_orch.engine.quoting import table_name

        wanted = table_name(table)
        return any(wanted.names(one.schema, one.table) for one in self.tables())

    def tables(self, *, snapshot: int | None = None, as_of: datetime | str | None = None) -> list[Table]:
        """List the lake's tables; a lake that the first write will create has none."""
        from ducklake_orch.engine import introspection

        try:
            with self.reading(snapshot, as_of) as session:
                return introspection.tables(session)
        except LakeNotFoundError:
            if not self.config.create_if_missing:
                raise
            return []

    def table(self, name: str) -> "LakeTable":
        """Return a handle on one table."""
        from ducklake_orch.table import LakeTable

        return LakeTable(self, name)

    # --- the lake itself -----------------------------------------------------------------------------------------

    def snapshots(self, limit: int | None = None) -> list[Snapshot]:
        """List the lake's snapshots, newest first; a lake that the first write will create has none."""
        from ducklake_orch.engine import introspection

        try:
            with self.reading() as session:
                return introspection.snapshots(session, limit)
        except LakeNotFoundError:
            if not self.config.create_if_missing:
                raise
            return []

    def fsck(self, *, deep: bool = False, storage: bool = False, repair: bool = False) -> FsckReport:
        """Find and explain every broken state of the lake; reads only the catalog, unless told more.

        Args:
            deep: Read the files, too: footers of all, contents of the live ones.
            storage: List the storage, too.
            repair: Mend what can be mended without guessing, in one snapshot.
        """
        from ducklake_orch.catalog.fsck.run import fsck

        return fsck(self.config, deep=deep, storage=storage, repair=repair)

    def options(self) -> list[Option]:
        """List the persisted options of the lake, its schemas and tables."""
        from ducklake_orch.engine import introspection

        with self.reading() as session:
            return introspection.options(session)

    def set_option(self, name: str, value: Scalar, *, schema: str | None = None, table: str | None = None) -> None:
        """Set a persisted option, for the lake, a schema, or a table.

        The engine looks for an option at the table, then its schema, then the lake, then ATTACH, then its setting.
        """
        from ducklake_orch.engine.quoting import TableName, table_name
        from ducklake_orch.engine.tables import set_options

        entry = None
        if table is not None:
            entry = table_name(table) if schema is None else TableName(schema, table)
        set_options(self.config, f"setting option `{name}`", {name: value}, schema=schema, table=entry)

    def apply_options(self) -> dict[str, tuple[str | None, Scalar]]:
        """Write the configured `options` to the lake; return what changed, as (before, after)."""
        from ducklake_orch.engine.tables import apply_options

        return apply_options(self.config)

    @staticmethod
    def list_lakes(catalog: Catalog | str) -> list[LakeEntry]:
        """List the lakes in one Postgres or MySQL database."""
        from ducklake_orch.engine.listing import list_lakes

        return list_lakes(CATALOGS.read(catalog))
