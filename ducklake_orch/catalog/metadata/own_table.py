"""Create and write ducklake-orch tables in the metadata database.

They are created on first write, and writes to them add no snapshot.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ducklake_orch.catalog.metadata.snapshot_reader import Metadata
from ducklake_orch.catalog.metadata.transaction import MetadataTransaction, commit_metadata
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.exactly_once import Write
from ducklake_orch.engine.session import Session, open_session


@dataclass(frozen=True)
class OwnTable:
    """A ducklake-orch table in the metadata database.

    Attributes:
        name: The table's name.
        columns: The definitions of its columns, in SQL that every catalog accepts.
    """

    name: str
    columns: str

    def table_exists(self, metadata: Metadata) -> bool:
        """Return whether the table exists."""
        return metadata.dialect.exists(metadata.con, self.name)

    def write(
        self,
        config: LakeConfig,
        purpose: str,
        work: Callable[[MetadataTransaction], None],
        others: "Sequence[OwnTable]" = (),
        write: Write | None = None,
    ) -> None:
        """Write to the table in a transaction of its own.

        Args:
            config: The lake.
            purpose: What is done, for messages.
            work: Runs on every attempt, so it must be idempotent.
            others: Other tables that `work` writes to.
            write: Tells the caller whether the outcome is known; it must be repeatable and not marked.
        """
        tables = (self, *others)

        def attempt(transaction: MetadataTransaction) -> None:
            for table in tables:
                create_in_transaction(transaction, table.name, table.columns)
            work(transaction)

        write = write or Write(purpose, marked=False, repeatable=True)
        with open_session(config, entering=False) as session:
            for table in tables:
                create_before_transaction(session, table.name, table.columns)
            commit_metadata(session, write, attempt)


def create_before_transaction(session: Session, name: str, columns: str) -> None:
    """Create a table before a transaction begins, on catalogs where CREATE TABLE would commit that transaction."""
    dialect, root = dialect_of(session.config), session.instance.root
    if dialect.create_commits and not dialect.exists(root, name):
        root.execute(dialect.change(name, _create_sql(columns)))


def create_in_transaction(transaction: MetadataTransaction, name: str, columns: str) -> None:
    """Create a table in the transaction that writes to it, where `create_before_transaction` does not."""
    if not transaction.dialect.create_commits:
        transaction.change(name, _create_sql(columns))


def _create_sql(columns: str) -> str:
    return f"CREATE TABLE IF NOT EXISTS {{}} ({columns})"
