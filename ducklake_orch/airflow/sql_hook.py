"""The hook as a SQL hook: what Airflow's own SQL operators, checks, transfers and sensors use."""

from collections.abc import Generator, Iterable, Mapping
from contextlib import ExitStack
from functools import cache, cached_property
from itertools import chain, islice
from typing import Any

import duckdb
from airflow.providers.common.sql.hooks.sql import DbApiHook

from ducklake_orch.airflow.assets import SCHEME
from ducklake_orch.airflow.dbapi import HookConnection, HookCursor, Parameters
from ducklake_orch.airflow.insert_statements import chunks, insert_sql, keyed_rows_sql, literal_rows
from ducklake_orch.airflow.query_frames import Query, check_options, read_chunks, read_frame
from ducklake_orch.airflow.run_stage import existing_stage
from ducklake_orch.airflow.sql_dialect import LakeDialect, LakeInspector
from ducklake_orch.airflow.task_run import Work
from ducklake_orch.config.arguments import refuse_unknown
from ducklake_orch.engine.error_classes import classify
from ducklake_orch.engine.quoting import literal, table_name
from ducklake_orch.engine.scripts import redact, split
from ducklake_orch.errors import ConfigError, DuckLakeOrchError, StatementError
from ducklake_orch.lake import DuckLake
from ducklake_orch.results import CommitInfo

try:
    from airflow.providers.common.sql.hooks.lineage import send_sql_hook_lineage
except ImportError:  # older versions of common.sql collect no lineage of hooks

    def send_sql_hook_lineage(**_: Any) -> None:  # type: ignore[misc]
        """Do nothing."""


class SqlHook(DbApiHook):
    """Runs SQL in the lake of a connection. Each `run` is one transaction and one snapshot.

    Args:
        schema: The lake's schema of table names without a schema; `main` by default. Operators call it `database`.
        database: Another name of `schema`.
        stage: The name of a stage that the hook reads instead of the lake. SQL cannot write then.
    """

    supports_autocommit = True
    _placeholder = "?"

    def __init__(
        self,
        *args: Any,
        schema: str | None = None,
        database: str | None = None,
        stage: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if schema and database and schema != database:
            raise ConfigError(
                f"`schema` = {schema!r} and `database` = {database!r} name two schemas.", remedy="Give one of them."
            )
        self.schema = schema or database
        self.stage = stage

    def lake(self) -> DuckLake:
        """Return the lake."""
        raise NotImplementedError

    def get_conn(self, stage: str | None = None) -> HookConnection:
        """Open a connection to the lake. Its writes wait for the catalog's lock, and their snapshots name the task.

        Args:
            stage: The name of a stage to read; by default the hook's. A published one is read as it was published.
        """
        config, name = self.lake().config, stage or self.stage
        with ExitStack() as stack:
            if name is not None:
                found = existing_stage(self.lake(), name)
                if found.snapshot_id is None:
                    config = stack.enter_context(self.lake().stage(found.name, create=False).reader()).config
                config = config.model_copy(update={"snapshot": found.snapshot_id, "read_only": True})
            return HookConnection(config, self._commit_info(), self.schema, stack.pop_all())

    def _refuse_stage(self, method: str) -> None:
        """Refuse a method that writes to the lake itself."""
        if self.stage is not None:
            raise ConfigError(
                f"`{method}` writes to the lake itself, but the hook has the stage `{self.stage}`.",
                remedy="Stage rows with `write`, or use a hook without a stage.",
            )

    # --- names -------------------------------------------------------------------------------------------------------

    @property
    def inspector(self) -> LakeInspector:  # type: ignore[override]  # it has the methods of SQLAlchemy's
        """An inspector of the lake's tables."""
        # Not cached: operators set `schema` after they made the hook.
        return LakeInspector(self.lake(), self.schema or "main")

    @cached_property
    def dialect(self) -> LakeDialect:
        """The dialect in which common.sql writes statements."""
        return LakeDialect(self)

    def get_reserved_words(self, dialect_name: str) -> set[str]:
        """Return the words that DuckDB takes as names only in quotes."""
        return _reserved_words()

    def get_table_schema(self, table_name: str, schema: str | None = None) -> list[dict[str, str]]:
        """Return the names and types of a table's columns. The oldest versions of common.sql lack this method."""
        columns = self.inspector.get_columns(table_name, schema)
        return [{"name": column["name"], "type": column["type"]} for column in columns]

    def get_sqlalchemy_engine(self, engine_kwargs: Any = None) -> Any:
        """Return None, as SQLAlchemy has no DuckLake dialect. OpenLineage, the caller, then uses its default one."""
        return None

    @staticmethod
    def split_sql_string(sql: str, strip_semicolon: bool = False) -> list[str]:
        """Split a script into statements with DuckDB's parser, which knows its strings and comments."""
        try:
            with duckdb.connect() as con:
                return [command.sql for command in split(con, sql)]
        except (duckdb.Error, StatementError):
            return [sql]  # running it reports the error

    # --- rows and frames ---------------------------------------------------------------------------------------------

    def insert_rows(
        self,
        table: str,
        rows: Iterable[Any],
        target_fields: Iterable[str] | None = None,
        commit_every: int = 1000,
        replace: bool = False,
        *,
        replace_index: str | Iterable[str] = (),
        **ignored: Any,
    ) -> None:
        """Insert rows with one statement and one snapshot for each `commit_every` rows.

        None, NaN and pandas' missing values become NULL. A value that no column can hold is refused.

        Args:
            table: `table` or `schema.table`.
            rows: The rows: sequences of values, or mappings from columns to values.
            target_fields: The columns of the rows; by default all columns of the table.
            commit_every: The number of rows in one snapshot; 0 puts all rows in one.
            replace: Whether a row updates the stored rows with equal values in `replace_index`.
            replace_index: The columns that identify a row.
            **ignored: `executemany`, `fast_executemany` and `autocommit` of other hooks change nothing, because all
                rows of a snapshot are one statement.
        """
        self._refuse_stage("insert_rows")
        known = ("table", "rows", "target_fields", "commit_every", "replace", "replace_index", *_OTHER_HOOKS_ARGUMENTS)
        refuse_unknown("`insert_rows`", ignored, known)
        rows = iter(rows)
        if not (first := list(islice(rows, 1))):
            return
        needs_columns = replace or (not target_fields and isinstance(first[0], Mapping))
        types = self.dialect.column_types(table) if needs_columns else {}
        fields, count = list(target_fields or types), 0
        keys = [replace_index] if isinstance(replace_index, str) else list(replace_index)
        literals = literal_rows(table, chain(first, rows), fields, strict=not target_fields)
        for chunk in chunks(literals, commit_every):
            if replace:
                self._merge(table, keyed_rows_sql(table, fields, chunk, keys=keys, types=types), keys)
            else:
                self._insert(insert_sql(self._sql_name(table), fields, chunk))
            count += len(chunk)
            self.log.info("Loaded %s rows into %s so far", count, table)
        sql = insert_sql(table, fields, [["?"] * (len(fields) or len(first[0]))])
        send_sql_hook_lineage(context=self, sql=sql, row_count=count)

    def bulk_load(self, table: str, tmp_file: str) -> None:
        r"""Load a tab-delimited file without a header into a table, in one snapshot. `\N` is NULL."""
        self.run(f"COPY {self._sql_name(table)} FROM {literal(tmp_file)} ({_TABS}, ALLOW_QUOTED_NULLS false)")

    def bulk_dump(self, table: str, tmp_file: str) -> None:
        r"""Write a table to a tab-delimited file without a header. NULL is `\N`."""
        self.run(f"COPY {self._sql_name(table)} TO {literal(tmp_file)} ({_TABS})")

    def _get_pandas_df(self, sql: Query, parameters: Parameters = None, **kwargs: Any) -> Any:
        return self._frame("pandas", sql, parameters, kwargs)

    def _get_polars_df(self, sql: Query, parameters: Parameters = None, **kwargs: Any) -> Any:
        return self._frame("polars", sql, parameters, kwargs)

    def _get_pandas_df_by_chunks(
        self, sql: Query, parameters: Parameters = None, *, chunksize: int, **kwargs: Any
    ) -> Generator[Any, None, None]:
        return self._frames("pandas", sql, parameters, chunksize, kwargs)

    def _get_polars_df_by_chunks(
        self, sql: Query, parameters: Parameters = None, *, chunksize: int, **kwargs: Any
    ) -> Generator[Any, None, None]:
        return self._frames("polars", sql, parameters, chunksize, kwargs)

    def _frame(self, kind: str, sql: Query, parameters: Parameters, options: dict[str, Any]) -> Any:
        check_options("`get_df`", kind, options)
        with self.get_conn() as connection:
            return read_frame(connection, kind, sql, parameters, options)

    def _frames(
        self, kind: str, sql: Query, parameters: Parameters, size: int, options: dict[str, Any]
    ) -> Generator[Any, None, None]:
        check_options("`get_df_by_chunks`", kind, options)
        with self.get_conn() as connection:
            yield from read_chunks(connection, kind, sql, parameters, options, size)

    # --- one statement -----------------------------------------------------------------------------------------------

    def _run_command(self, cur: HookCursor, sql_statement: str, parameters: Parameters) -> None:
        # Airflow's own method would put the secrets of CREATE SECRET in logs and lineage.
        shown = redact(sql_statement, self.lake().config.scrubber)
        if self.log_sql:
            self.log.info("Running statement: %s", shown)
        cur.execute(sql_statement, parameters)
        send_sql_hook_lineage(context=self, sql=shown, sql_parameters=parameters, cur=cur)
        if cur.rowcount >= 0:
            self.log.info("Rows affected: %s", cur.rowcount)

    def _insert(self, statement: str) -> None:
        with self.get_conn() as connection:
            connection.autocommit = True  # a statement of its own is retried after conflicts
            connection.run(statement, None)

    def _merge(self, table: str, query: str, keys: list[str]) -> None:
        failure: DuckLakeOrchError | None = None
        try:
            with duckdb.connect() as con:
                # Not MERGE INTO, which DuckDB cannot commit on MySQL.
                self.lake().merge(con.sql(query), self._name(table), keys, commit=self._commit_info())
        except duckdb.Error as error:
            failure = classify(error, self.lake().config, f"The rows for `{table}` cannot be read")
        if failure is not None:
            raise failure

    def _name(self, table: str) -> str:
        return str(table_name(table, self.schema or "main"))

    def _sql_name(self, table: str) -> str:
        return table_name(table, self.schema or "main").sql(self.lake().config.alias)

    def _commit_info(self) -> CommitInfo:
        work = Work.running()
        return work.commit_info(f"SQL of task {work.task_id}") if work is not None else CommitInfo(author="airflow")

    # --- lineage -----------------------------------------------------------------------------------------------------

    def get_openlineage_database_info(self, connection: Any) -> Any:
        """Return OpenLineage's names of the tables in SQL, which are the names of their assets."""
        from airflow.providers.openlineage.sqlparser import DatabaseInfo

        columns = ["table_schema", "table_name", "column_name", "ordinal_position", "data_type"]
        authority = self.get_conn_id().lower()
        return DatabaseInfo(scheme=SCHEME, authority=authority, database=None, information_schema_columns=columns)

    def get_openlineage_database_dialect(self, _: Any) -> str:
        """Return the dialect of the SQL."""
        return "duckdb"

    def get_openlineage_default_schema(self) -> str:
        """Return the schema of table names without a schema."""
        return self.schema or "main"


@cache
def _reserved_words() -> set[str]:
    with duckdb.connect() as con:
        sql = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category = 'reserved'"
        return {str(row[0]) for row in con.execute(sql).fetchall()}


_OTHER_HOOKS_ARGUMENTS = ("executemany", "fast_executemany", "autocommit")
_TABS = r"FORMAT csv, DELIMITER '\t', HEADER false, NULLSTR '\N'"
