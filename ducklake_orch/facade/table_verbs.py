"""Verbs that create, drop and list tables, and read and set options."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ducklake_orch.config.lake import Scalar
from ducklake_orch.facade.lake_base import LakeBase
from ducklake_orch.results import CommitInfo, Option, Table, WriteResult

if TYPE_CHECKING:
    from ducklake_orch.table import LakeTable


class TableVerbs(LakeBase):
    """Create, find, configure and drop tables."""

    def create_table(
        self,
        table: str,
        schema: Any,
        *,
        defaults: Mapping[str, Any] | None = None,
        partition_by: Sequence[str] | None = None,
        sort_by: Sequence[str] | None = None,
        cluster_by: Sequence[str] | None = None,
        comment: str | None = None,
        options: Mapping[str, Scalar] | None = None,
        if_not_exists: bool = False,
        commit: CommitInfo | None = None,
    ) -> None:
        """Create a table with its layout, and its schema if needed, in one snapshot.

        Args:
            table: `table` or `schema.table`.
            schema: A pyarrow.Schema, a Spark StructType, or `{name: DuckDB type}`; ` NOT NULL` may follow a type.
            defaults: Values of rows that do not name a column, by column.
            partition_by: Keys such as `year(ts)`, `bucket(16, id)`, `region`.
            sort_by: Keys such as `ts desc nulls last`, `lower(region)`.
            cluster_by: Up to four columns by which maintenance clusters the rows; see `LakeTable.set_cluster_by`.
            comment: A description of the table.
            options: Persisted options of this table.
            if_not_exists: Leave an existing table of that name as it is.
            commit: Author, message and extra of the snapshot.

        Examples:
            >>> lake.create_table("events", {"id": "BIGINT NOT NULL", "at": "TIMESTAMP"}, partition_by=["day(at)"])
            >>> [column.partition for column in lake.table("events").schema()]
            [None, 'day']
        """
        from ducklake_orch.catalog.lifecycle import set_cluster_keys
        from ducklake_orch.engine.quoting import table_name
        from ducklake_orch.engine.tables import create_table

        create_table(
            self.config,
            table_name(table),
            schema,
            defaults=defaults or {},
            partition_by=partition_by,
            sort_by=sort_by,
            cluster_by=cluster_by,
            comment=comment,
            options=options or {},
            if_not_exists=if_not_exists,
            info=commit or CommitInfo(),
        )
        if cluster_by is not None:
            set_cluster_keys(self.config, table_name(table), cluster_by)

    def alter_table(
        self,
        table: str,
        *,
        add_columns: Any = None,
        drop_columns: Sequence[str] = (),
        rename_columns: Mapping[str, str] | None = None,
        change_types: Mapping[str, str] | None = None,
        set_defaults: Mapping[str, Any] | None = None,
        allow_nulls: Sequence[str] = (),
        partition_by: Sequence[str] | None = None,
        sort_by: Sequence[str] | None = None,
        comment: str | None = None,
        column_comments: Mapping[str, str] | None = None,
        commit: CommitInfo | None = None,
    ) -> WriteResult:
        """Change columns, comments and layout of a table, in one snapshot. Existing files stay as they are.

        `drop_columns` and `rename_columns` name columns as they are; the other arguments name them as they will be.

        Args:
            table: `table` or `schema.table`.
            add_columns: New columns, as a schema like that of `create_table`.
            drop_columns: Columns to drop. Earlier snapshots keep them.
            rename_columns: New names, by column.
            change_types: Wider types, by column: an INTEGER can become BIGINT.
            set_defaults: Values of new rows that do not name a column, by column; None removes the default. In a column
                that is added, existing rows get the value, too.
            allow_nulls: NOT NULL columns that may contain NULL from now on.
            partition_by: Partition keys of new files; an empty list removes them.
            sort_by: Sort keys of new files; an empty list removes them.
            comment: A description of the table; an empty text removes it.
            column_comments: Descriptions by column; an empty text removes one.
            commit: Author, message and extra of the snapshot.

        Examples:
            >>> _ = lake.alter_table("orders", add_columns={"note": "VARCHAR"}, partition_by=["region"])
            >>> [(column.name, column.partition) for column in lake.table("orders").schema()]
            [('id', None), ('region', 'identity'), ('price', None), ('note', None)]
        """
        from ducklake_orch.catalog.verbs import AlterRequest, alter_table
        from ducklake_orch.catalog.writing import Alteration
        from ducklake_orch.engine.quoting import table_name

        alteration = Alteration(
            add={} if add_columns is None else add_columns,
            drop=drop_columns,
            rename=rename_columns or {},
            types=change_types or {},
            defaults=set_defaults or {},
            allow_nulls=allow_nulls,
            comments=column_comments or {},
            partition_by=partition_by,
            sort_by=sort_by,
        )
        return alter_table(
            self.config, AlterRequest(table_name(table), alteration, comment=comment, commit=commit or CommitInfo())
        )

    def drop_table(self, table: str, *, if_exists: bool = False, commit: CommitInfo | None = None) -> None:
        """Drop a table. Its history stays until its snapshots expire.

        Args:
            table: `table` or `schema.table`.
            if_exists: Do nothing if there is no such table.
            commit: Author, message and extra of the snapshot.

        Examples:
            >>> lake.drop_table("orders")
            >>> lake.exists("orders")
            False
        """
        from ducklake_orch.engine.quoting import table_name
        from ducklake_orch.engine.tables import run_statements

        maybe = "IF EXISTS " if if_exists else ""
        drop = f"DROP TABLE {maybe}{table_name(table).sql(self.config.alias)}"
        run_statements(self.config, f"dropping table `{table}`", [drop], commit)

    def tables(
        self,
        *,
        snapshot: int | None = None,
        as_of: datetime | str | None = None,
        tag: str | None = None,
        rows: bool = False,
    ) -> list[Table]:
        """List the lake's tables. A lake that the first write will create has none.

        Args:
            snapshot: As of this snapshot.
            as_of: As of this time.
            tag: As of the snapshot with this name.
            rows: Also count the rows of each table, as `lake.table(…).count()` does, and tell when they last changed.

        Examples:
            >>> [f"{table.schema}.{table.table}" for table in lake.tables()]
            ['main.orders']
        """
        from ducklake_orch.catalog.scan import counted_tables
        from ducklake_orch.engine import introspection

        snapshot = self._snapshot_of(tag, snapshot, as_of)
        return self._read_if_created(counted_tables if rows else introspection.tables, [], snapshot, as_of)

    def exists(self, table: str) -> bool:
        """Whether the lake has a table of that name.

        Args:
            table: `table` or `schema.table`.

        Examples:
            >>> lake.exists("orders")
            True
        """
        from ducklake_orch.engine.quoting import table_name

        wanted = table_name(table)
        return any(wanted.names(entry.schema, entry.table) for entry in self.tables())

    def table(self, name: str) -> "LakeTable":
        """Return a handle on one table; it reads nothing until one of its methods is called.

        Args:
            name: `table` or `schema.table`.

        Examples:
            >>> lake.table("orders").count()
            3
        """
        from ducklake_orch.table import LakeTable

        return LakeTable(self, name)

    def options(self) -> list[Option]:
        """List the persisted options of the lake, its schemas and tables.

        Examples:
            >>> next(option.value for option in lake.options() if option.name == "created_by")[:6]
            'DuckDB'
        """
        from ducklake_orch.engine import introspection

        with self.reading() as session:
            return introspection.options(session)

    def set_option(self, name: str, value: Scalar, *, schema: str | None = None, table: str | None = None) -> None:
        """Set a persisted option, for the lake, a schema, or a table.

        The engine takes an option from the table, else its schema, the lake, ATTACH, or its own setting.

        Args:
            name: The option, such as `parquet_compression`.
            value: Its value.
            schema: The schema that it is for.
            table: The table that it is for.

        Examples:
            >>> lake.set_option("parquet_compression", "zstd", table="orders")
            >>> next(str(option) for option in lake.options() if option.scope == "table")
            'parquet_compression = zstd of table main.orders'
        """
        from ducklake_orch.engine.quoting import TableName, table_name
        from ducklake_orch.engine.tables import set_options

        entry = None
        if table is not None:
            entry = table_name(table) if schema is None else TableName(schema, table)
        set_options(self.config, f"setting option `{name}`", {name: value}, schema=schema, table=entry)

    def apply_options(self) -> dict[str, tuple[str | None, Scalar]]:
        """Write the configured `options` to the lake; return the changes, as (before, after).

        Examples:
            >>> sized = DuckLake.local("shop", options={"target_file_size": "64MB"})
            >>> sized.apply_options()
            {'target_file_size': (None, '64MB')}
        """
        from ducklake_orch.engine.tables import apply_options

        return apply_options(self.config)
