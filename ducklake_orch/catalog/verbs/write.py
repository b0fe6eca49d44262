"""`lake.write`: plan a write, write its data files and commit them; a failed write removes its files.

`write_table` does all steps in this process. `PlannedWrite` lets executors in other processes write the files.
"""

from dataclasses import dataclass, replace
from functools import partial

from ducklake_orch.catalog.commit import record_lease, remove_lease
from ducklake_orch.catalog.verbs.append_together import append_rows
from ducklake_orch.catalog.verbs.row_source import Job, Rows
from ducklake_orch.catalog.verbs.table_writer import TableWriter, WritePlan
from ducklake_orch.catalog.verbs.write_request import WriteRequest
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.exactly_once import Write, refuse_managed, refuse_read_only
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.phases import timed_attempts
from ducklake_orch.engine.retry import by_plan
from ducklake_orch.engine.stored_files import remove_leftovers
from ducklake_orch.errors import DuckLakeOrchError
from ducklake_orch.results import WriteResult


def write_table(config: LakeConfig, rows: Rows, request: WriteRequest) -> WriteResult:
    """Write rows to a table.

    Args:
        config: The lake.
        rows: The rows to write.
        request: Target table and write options.
    """
    _refuse(config, request)

    def attempts_for(error: DuckLakeOrchError) -> int:
        return by_plan(error) if rows.repeatable else 1

    result = timed_attempts(
        config.retry,
        f"writing `{request.table}`",
        lambda _: append_rows(config, rows, request),
        attempts_for=attempts_for,
    )
    return replace(result, engine=rows.engine)


@dataclass(frozen=True)
class PlannedWrite:
    """A planned write that has yet to be committed. It can be pickled, so that another process can commit it.

    Attributes:
        config: The lake.
        request: Target table and write options.
        write: Identity of the write.
        plan: The plan of the write.
    """

    config: LakeConfig
    request: WriteRequest
    write: Write
    plan: WritePlan

    @classmethod
    def of(cls, config: LakeConfig, rows: Rows, request: WriteRequest) -> "PlannedWrite":
        """Plan a write and record its lease. Only the types of the rows are read."""
        _refuse(config, request)
        write = Write(f"writing `{request.table}`", request.commit)
        plan = TableWriter(config, rows, request, write).plan()
        if plan.done is None:
            record_lease(config, write, plan.latest.snapshot_id)
        return cls(config, request, write, plan)

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to write."""
        return self.plan.done is not None

    def job(self) -> Job:
        """Return the job for the process that writes the files."""
        request = self.request
        working = partial(working_connection, self.config)
        return Job(self.config, self.plan.target, self.write.write_id, request.where, request.outside, 0, working)

    def finish(self, rows: Rows) -> WriteResult:
        """Commit the files that were written for the rows."""
        try:
            return TableWriter(self.config, rows, self.request, self.write).finish(self.plan)
        finally:
            self._unpin()

    def remove_leftovers(self) -> int:
        """Delete files of the write that no snapshot refers to; return how many were deleted."""
        return remove_leftovers(self.config, self.write, self.plan.target.folder)

    def abandon(self) -> None:
        """Delete the files of a write that will not be committed."""
        self.remove_leftovers()
        self._unpin()

    def _unpin(self) -> None:
        if not self.is_done:
            remove_lease(self.config, self.write)


def _refuse(config: LakeConfig, request: WriteRequest) -> None:
    refuse_read_only(config, f"writing `{request.table}`")
    refuse_managed(config, f"writing `{request.table}`")
