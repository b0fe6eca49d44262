"""How the catalog knows a batch of a streaming query that was written before: `StreamBatch`."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from ducklake_orch.catalog.commit import snapshot_of_key
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.engine.session import Session
from ducklake_orch.errors import ConfigError
from ducklake_orch.results import CommitInfo


@dataclass(frozen=True)
class StreamBatch:
    """A batch of a streaming query.

    Attributes:
        query: The id of the query, or a name that stands for it.
        number: The number of the batch, which a batch that Spark runs again keeps.
    """

    query: str
    number: int

    @property
    def key(self) -> str:
        """The idempotency key of its commit."""
        return f"stream {self.query} batch {self.number}"

    def described(self, commit: CommitInfo) -> CommitInfo:
        """Return the commit information, with the query and the batch in `extra`."""
        return replace(commit, extra={**commit.extra, "stream": {"query": self.query, "batch": self.number}})

    def refuse_passed(self, opened: AbstractContextManager[Session], table: TableName) -> None:
        """Refuse a batch that was committed before, if the one after it was, too: Spark repeats only the last batch.

        Args:
            opened: A session to read the lake with; it need not be entered.
            table: The table's name.
        """
        if replace(self, number=self.number + 1).is_in(opened, table):
            raise ConfigError(
                f"Batches {self.number} and {self.number + 1} of the streaming query `{self.query}` are in `{table}`"
                " already: its checkpoint was made anew, or another query has its name.",
                remedy="Give the query a new name with `query`.",
            )

    def is_in(self, opened: AbstractContextManager[Session], table: TableName) -> bool:
        """Whether the batch is committed to a table.

        Args:
            opened: A session to read the lake with; it need not be entered.
            table: The table's name.
        """
        return snapshot_of_key(opened, table, self.key) is not None
