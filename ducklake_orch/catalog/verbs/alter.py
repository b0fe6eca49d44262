"""`lake.alter_table`: change columns, comments and layout of a table in one snapshot."""

from dataclasses import dataclass, field

from ducklake_orch.catalog.commit import TableChange, commit_change, write_result
from ducklake_orch.catalog.metadata import reading
from ducklake_orch.catalog.writing import Alteration
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.exactly_once import Write, refuse_managed, refuse_read_only, refuse_without_message
from ducklake_orch.engine.phases import timed_attempts
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.engine.retry import by_plan
from ducklake_orch.engine.session import open_session
from ducklake_orch.errors import ConfigError
from ducklake_orch.results import CommitInfo, WriteResult


@dataclass(frozen=True)
class AlterRequest:
    """The arguments of `lake.alter_table`.

    Attributes:
        comment: The comment of the table; an empty one removes it; None leaves it.
    """

    table: TableName
    alteration: Alteration
    comment: str | None = None
    commit: CommitInfo = field(default_factory=CommitInfo)

    def __post_init__(self) -> None:
        if self.alteration == Alteration() and self.comment is None:
            raise ConfigError(
                f"Nothing to change about `{self.table}`.", remedy="Say what: `add_columns`, `comment`, `partition_by`…"
            )


def alter_table(config: LakeConfig, request: AlterRequest) -> WriteResult:
    """Change the definition of a table. No file is read or written."""
    purpose = f"altering `{request.table}`"
    refuse_read_only(config, purpose)
    refuse_managed(config, purpose)
    return timed_attempts(config.retry, purpose, lambda _: _altered(config, request, purpose), attempts_for=by_plan)


def _altered(config: LakeConfig, request: AlterRequest, purpose: str) -> WriteResult:
    write = Write(purpose, request.commit)
    with open_session(config, entering=False) as session:
        with reading(session, f"Planning for {purpose}") as metadata:
            latest = metadata.latest()
            refuse_without_message(purpose, request.commit, required=metadata.requires_message())
            known = metadata.table(request.table, latest.snapshot_id)
            target = request.alteration.applied(metadata, known)
        change = TableChange(
            request.table, known, target, planned_version=latest.schema_version, comment=request.comment
        )
        done = commit_change(session, write, change)
    return write_result(write, target, "alter", [], done)
