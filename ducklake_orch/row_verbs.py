"""The facade's verbs that change rows where they are."""

from collections.abc import Mapping

from ducklake_orch.handle import LakeHandle
from ducklake_orch.results import CommitInfo, WriteResult


class RowVerbs(LakeHandle):
    """What can be done to single rows of a table."""

    def delete(
        self,
        table: str,
        where: str,
        *,
        engine: str = "auto",
        dry_run: bool = False,
        expect_snapshot: int | None = None,
        idempotency_key: str | None = None,
        commit: CommitInfo | None = None,
    ) -> WriteResult:
        """Delete rows, in one snapshot, beside any other writer; a file that loses few of them is not written anew.

        Args:
            table: `table` or `schema.table`.
            where: Which rows go, as a condition in DuckDB's SQL.
            engine: What looks for the rows: `duckdb` in this process, or `auto`.
            dry_run: Only say how many rows would go.
            expect_snapshot: Refuse when rows that may meet the condition have changed since this snapshot.
            idempotency_key: The caller's name for this work, kept beside the snapshot.
            commit: Author, message and extra of the snapshot.
        """
        from ducklake_orch.catalog.delete import DeleteRequest, delete_rows
        from ducklake_orch.engine.quoting import table_name

        request = DeleteRequest(
            table=table_name(table),
            where=where,
            engine=engine,
            dry_run=dry_run,
            expect_snapshot=expect_snapshot,
            idempotency_key=idempotency_key,
            commit=commit or CommitInfo(),
        )
        return delete_rows(self.config, request)

    def update(
        self,
        table: str,
        set: Mapping[str, str],
        where: str | None = None,
        *,
        engine: str = "auto",
        dry_run: bool = False,
        expect_snapshot: int | None = None,
        idempotency_key: str | None = None,
        commit: CommitInfo | None = None,
    ) -> WriteResult:
        """Change rows, in one snapshot, beside any other writer; they keep their row ids.

        Args:
            table: `table` or `schema.table`.
            set: What columns get, as expressions in DuckDB's SQL over the row as it was: `{"price": "price * 1.1"}`.
            where: Which rows change, as a condition in DuckDB's SQL; all when None.
            engine: What looks for the rows: `duckdb` in this process, or `auto`.
            dry_run: Only say how many rows would change.
            expect_snapshot: Refuse when rows that may meet the condition have changed since this snapshot.
            idempotency_key: The same for every attempt at the same work: where values follow from others, what is
                committed already is not done again.
            commit: Author, message and extra of the snapshot.
        """
        from ducklake_orch.catalog.update import UpdateRequest, update_rows
        from ducklake_orch.engine.quoting import table_name

        request = UpdateRequest(
            table=table_name(table),
            set=set,
            where=where,
            engine=engine,
            dry_run=dry_run,
            expect_snapshot=expect_snapshot,
            idempotency_key=idempotency_key,
            commit=commit or CommitInfo(),
        )
        return update_rows(self.config, request)
