"""Tables of this package beside the lake's own, written in transactions that make no snapshot."""

from collections.abc import Callable
from dataclasses import dataclass

from ducklake_orch.catalog.metadata import Metadata
from ducklake_orch.catalog.transaction import MetadataTransaction
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine import server_sql
from ducklake_orch.engine.commit import Write, commit_through
from ducklake_orch.engine.quoting import literal
from ducklake_orch.engine.session import open_session


@dataclass(frozen=True)
class OwnTable:
    """A table of ours in the metadata database; it is made by the first who writes to it.

    Attributes:
        name: Its name.
        columns: Its columns, in SQL that every catalog takes.
    """

    name: str
    columns: str

    def is_there(self, metadata: Metadata) -> bool:
        """Whether anybody has made it yet."""
        return server_sql.exists(metadata.con, metadata.config, self.name)

    def write(self, config: LakeConfig, purpose: str, work: Callable[[MetadataTransaction], None]) -> None:
        """Write to it; `work` is called again on every attempt, and doing it twice must be the same as once."""

        def attempt(transaction: MetadataTransaction) -> None:
            if config.catalog.type != "mysql":
                transaction.change(self.name, self._create_sql)
            work(transaction)

        write = Write(purpose, marked=False, repeatable=True)
        with open_session(config, entering=False) as session:
            root = session.instance.root
            if config.catalog.type == "mysql" and not server_sql.exists(root, config, self.name):
                # MySQL commits what is open at every CREATE.
                sql = self._create_sql.replace("{}", server_sql.table(config, self.name))
                root.execute(f"CALL mysql_execute({literal(config.metadata_alias)}, {literal(sql)})")
            commit_through(MetadataTransaction, session, write, attempt, settle=False)

    @property
    def _create_sql(self) -> str:
        return f"CREATE TABLE IF NOT EXISTS {{}} ({self.columns})"
