"""The facade: one object that opens a lake and does everything with it."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from ducklake_orch.config.catalogs import CATALOGS, Catalog
from ducklake_orch.config.units import parse_duration, read_argument
from ducklake_orch.facade.lake_base import after_sql
from ducklake_orch.facade.maintenance_verbs import MaintenanceVerbs
from ducklake_orch.facade.read_verbs import ReadVerbs
from ducklake_orch.facade.row_verbs import RowVerbs
from ducklake_orch.facade.sql_verbs import SqlVerbs
from ducklake_orch.facade.stream_verbs import StreamVerbs
from ducklake_orch.facade.table_verbs import TableVerbs
from ducklake_orch.facade.tag_verbs import TagVerbs
from ducklake_orch.facade.transaction_verbs import TransactionVerbs
from ducklake_orch.facade.write_verbs import WriteVerbs
from ducklake_orch.results import CommitInfo, ExecuteResult, LakeEntry


class DuckLake(
    ReadVerbs, WriteVerbs, RowVerbs, TableVerbs, TagVerbs, StreamVerbs, SqlVerbs, TransactionVerbs, MaintenanceVerbs
):
    """A DuckLake: a SQL catalog and its data files.

    Creating the object opens nothing. Each call connects, works and disconnects; connections to server catalogs are
    pooled. The verbs are defined in `ducklake_orch/facade/`, grouped by what users do.

    Args:
        config: The lake's configuration.

    Attributes:
        config: The lake's configuration.
        origins: Where each value of the configuration came from, by its path.

    Examples:
        The examples of all methods start from this lake:

        >>> import pyarrow as pa
        >>> from ducklake_orch import DuckLake
        >>> lake = DuckLake.local("shop")
        >>> orders = pa.table({"id": [1, 2, 3], "region": ["eu", "us", "eu"], "price": [10.0, 20.0, 30.0]})
        >>> lake.write(orders, "orders", mode="append").rows_written
        3
    """

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
        tag: str | None = None,
    ) -> ExecuteResult:
        """Run SQL commands and report each of them.

        Writes wait in the catalog's queue and are retried after transient failures; each commits exactly once. The
        arguments are those of a SQL client; most calls give only the commands.

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
            tag: See the lake as of the snapshot with this name.

        Raises:
            DuckLakeOrchError: Only when the lake cannot be opened; a failing command is reported in the result.

        Examples:
            >>> result = lake.execute("SELECT region, sum(price) AS total FROM orders GROUP BY region ORDER BY region")
            >>> result.rows
            [{'region': 'eu', 'total': 40.0}, {'region': 'us', 'total': 20.0}]
            >>> lake.execute(["BEGIN", "DELETE FROM orders WHERE id = 1", "COMMIT"]).raise_for_error().executed
            3
        """
        from ducklake_orch.engine.dialects import dialect_of
        from ducklake_orch.engine.execute import execute, only_reads
        from ducklake_orch.engine.execute_request import Request

        lake = self.sibling(use) if use is not None and use != self.config.name else self
        seconds = None if timeout is None else read_argument("timeout", parse_duration, timeout).total_seconds()
        request = Request(atomic, on_error, max_rows, params, seconds, force, commit)
        file = lake.config.catalog_file
        if file is not None and file.exists() and dialect_of(lake.config).attached_by_one_process:
            # The file is open to one writer or to many readers.
            read_only = read_only or only_reads(commands)
        snapshot = lake._snapshot_of(tag, snapshot, as_of)
        return execute(lake.config, commands, request, lake._pin(read_only, snapshot, as_of), _draft_sql, after_sql)

    @staticmethod
    def list_lakes(catalog: Catalog | str) -> list[LakeEntry]:
        """List the lakes in one Postgres or MySQL database.

        Args:
            catalog: The database, as a catalog or its URL.

        Examples:
            >>> DuckLake.list_lakes("postgresql://etl@localhost/lakes")  # doctest: +SKIP
            [LakeEntry(metadata_schema='sales', data_path='s3://company-lake/sales/', version='1.0')]
        """
        from ducklake_orch.engine.listing import list_lakes

        return list_lakes(CATALOGS.read(catalog))


def _draft_sql(*arguments: Any) -> Any:
    """Call `draft_sql`, which takes a tenth of a second to import and which only some catalogs need."""
    from ducklake_orch.catalog.transactions import draft_sql

    return draft_sql(*arguments)
