"""Transactions over several tables."""

from datetime import timedelta
from typing import TYPE_CHECKING, Literal, cast

from ducklake_orch.facade.lake_base import LakeBase
from ducklake_orch.results import CommitInfo, StageInfo

if TYPE_CHECKING:
    from ducklake_orch.facade.stage import Stage
    from ducklake_orch.facade.transaction import Transaction
    from ducklake_orch.lake import DuckLake


class TransactionVerbs(LakeBase):
    """Change several tables in one snapshot."""

    def transaction(
        self,
        *,
        idempotency_key: str | None = None,
        commit: CommitInfo | None = None,
        expect_snapshot: int | None = None,
        isolation: Literal["snapshot", "serializable"] = "snapshot",
    ) -> "Transaction":
        """Begin a transaction: the changes that its block makes become one snapshot when the block ends.

        All files are written before the commit, which alone holds the lake's lock. An exception in the block leaves
        nothing behind.

        Args:
            idempotency_key: Identifies the work across retries; committed work is not repeated.
            commit: Author, message and extra of the snapshot.
            expect_snapshot: Fail when rows that the transaction replaces have changed since this snapshot.
            isolation: `snapshot`, or `serializable`: tables that the block reads must not have changed when it commits.

        Raises:
            ConflictError: When another commit changed what the transaction depends on; the block can be run again.

        Examples:
            >>> with lake.transaction() as tx:
            ...     _ = tx.write(orders, "archive", mode="append")
            ...     _ = tx.delete("orders", "region = 'eu'")
            >>> lake.snapshots(limit=1)[0].snapshot_id == tx.result.snapshot_id
            True
        """
        from ducklake_orch.facade.transaction import Transaction

        return Transaction(
            cast("DuckLake", self),
            idempotency_key=idempotency_key,
            commit=commit,
            expect_snapshot=expect_snapshot,
            isolation=isolation,
        )

    def stage(
        self, name: str, *, ttl: str | timedelta = "7 days", create: bool = True, author: str | None = None
    ) -> "Stage":
        """Return a stage: changes of several tables that the catalog keeps until they are published together.

        Args:
            name: The name of the stage; every process that gives the same name gets the same stage.
            ttl: How long a new stage lasts. Maintenance discards it after that.
            create: Create the stage if it does not exist.
            author: Who creates it, for `stages`.

        Raises:
            ObjectNotFoundError: When there is no such stage and `create` is false.

        Examples:
            >>> stage = lake.stage("nightly")
            >>> _ = stage.write(orders, "archive", mode="append")
            >>> lake.exists("archive"), stage.publish().snapshot_id == lake.snapshots(limit=1)[0].snapshot_id
            (False, True)
        """
        from ducklake_orch.facade.stage import get_stage

        return get_stage(cast("DuckLake", self), name, ttl, create=create, author=author)

    def stages(self) -> list[StageInfo]:
        """List the stages, oldest first.

        Examples:
            >>> _ = lake.stage("nightly").write(orders, "archive", mode="append")
            >>> [(stage.name, stage.status, stage.rows_added) for stage in lake.stages()]
            [('nightly', 'open', 3)]
        """
        from ducklake_orch.facade.stage_listing import list_stages

        return self._read_if_created(list_stages, [])
