"""The draft of a transaction: a private catalog in which its verbs run before they are committed to the lake.

A draft is a SQLite catalog in a temporary folder. It holds the tables that the transaction uses, as they were at its
base snapshot, and refers to the lake's own files; new files go into the lake's folders. So every verb and every reader
works in a draft as it does in the lake, and other programs see nothing of it.
"""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import duckdb

from ducklake_orch.catalog.commit import TableChange, begin_recording, end_recording
from ducklake_orch.catalog.metadata import Metadata, SnapshotRow, TableDef
from ducklake_orch.catalog.search import RowPlan, plan_rows, planning
from ducklake_orch.catalog.transactions.table_copy import (
    create_inlined,
    hidden_rows,
    lake_rows,
    late_files,
    replace_lake_rows,
    table_rows,
)
from ducklake_orch.config.catalogs import SQLiteCatalog
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.attach import Access
from ducklake_orch.engine.connection import LakeConnection
from ducklake_orch.engine.exactly_once import Write, refuse_without_message
from ducklake_orch.engine.formats import FORMAT, only_read
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.engine.session import Session, open_metadata, open_session
from ducklake_orch.errors import ConflictError

_FILE = "draft.sqlite"
# A catalog in which nothing was done yet, by the engine's version.
_EMPTY: dict[str, bytes] = {}


@dataclass(frozen=True)
class AdoptedTable:
    """A table of the lake that a draft holds.

    Attributes:
        plan: The table, its files and its inlined rows at the base snapshot.
        next_row_id: Rows of the base have smaller ids; rows that the transaction adds have this id or a larger one.
        late: Ids of the files that other commits have changed between the base snapshot and the copy.
    """

    plan: RowPlan
    next_row_id: int
    late: frozenset[int]

    @property
    def table(self) -> TableDef:
        """The table at the base snapshot."""
        return self.plan.table


class Draft:
    """A private catalog with some tables of a lake.

    Args:
        lake: The lake.
        write: The transaction.
        base: The snapshot to begin from; by default the latest.
        session: An open session of the lake, for a caller that must not open a second one; by default, each use of the
            lake opens one.

    Attributes:
        lake: The lake.
        config: The draft, as a lake of its own.
        base: The snapshot that the draft begins from.
        recording: What the verbs do in the draft.
        tables: The tables that were looked for, by the keys of their names; None for a name that no table has.
    """

    def __init__(self, lake: LakeConfig, write: Write, base: int | None = None, session: Session | None = None) -> None:
        self.lake = lake
        self._session = session
        self.tables: dict[TableName, AdoptedTable | None] = {}
        self._folder = Path(tempfile.mkdtemp(prefix="ducklake-orch-"))
        self.config = self._config()
        self.recording = begin_recording(self.config)
        try:
            self.base = self._create(write, base)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Delete the draft; the files that its verbs wrote stay."""
        end_recording(self.config)
        shutil.rmtree(self._folder, ignore_errors=True)

    def adopt(self, wanted: TableName) -> AdoptedTable | None:
        """Copy a table as it is at the base snapshot, once; return None if the lake lacks it."""
        self.adopt_tables([wanted])
        return self.tables[wanted.key]

    def adopt_all(self) -> None:
        """Copy all tables of the base snapshot."""
        self.adopt_tables(self._all_tables())

    def adopt_tables(self, wanted: Sequence[TableName]) -> None:
        """Copy tables as they are at the base snapshot, each once."""
        if new := {name.key for name in wanted} - self.tables.keys():
            self.tables |= self._adopted(sorted(new))

    def record_drop(self, name: TableName) -> None:
        """Record that a verb has dropped a table."""
        if (adopted := self.tables[name.key]) is not None:
            self.recording.changes.append(TableChange(name, adopted.table, adopted.table, drops=True))

    def has_dropped(self, name: TableName) -> bool:
        """Whether a verb has dropped a table of the lake."""
        return any(change.drops and change.table.key == name.key for change in self.recording.changes)

    def has_view(self, name: TableName) -> bool:
        """Whether a view of the base snapshot has a name."""
        with planning(self.config, f"Looking for `{name}`", reads=True) as metadata:
            return metadata.has_view(*name, metadata.latest().snapshot_id)

    @contextmanager
    def lake_session(self) -> Iterator[Session]:
        """Open the lake for a block."""
        if self._session is not None:
            yield self._session
            return
        with open_session(self.lake, entering=False) as session:
            yield session

    def reading_lake(self, doing: str) -> AbstractContextManager[Metadata]:
        """Read the metadata of the lake for a block."""
        return planning(self.lake, doing, self._session, reads=True)

    def _all_tables(self) -> list[TableName]:
        with self.reading_lake("Listing tables for a transaction") as metadata:
            names = metadata.table_names(self.base.snapshot_id)
        return [TableName(schema, table) for schema, table in names]

    def _adopted(self, wanted: Sequence[TableName]) -> dict[TableName, AdoptedTable | None]:
        at = self.base.snapshot_id
        with self.reading_lake("Reading tables for a transaction") as metadata:
            if metadata.snapshot(at) is None:
                raise _expired(at)
            plans = {
                name: plan_rows(metadata, table, self.base, None, values=False)
                for name in wanted
                if (table := metadata.find_table(name, at)) is not None
            }
            if not plans:
                return dict.fromkeys(wanted)
            late = {name: late_files(plan) for name, plan in plans.items()}
            copies = table_rows(metadata, list(plans.values()), at, self.config, [*chain(*late.values())])
        hidden = {name: hidden_rows(self.lake, plan, late[name]) for name, plan in plans.items()}
        with self._writing() as con:
            for name, plan in plans.items():
                create_inlined(con, self.config, plan, copies, hidden[name])
            copies.insert(con, self.config)
        first = copies.next_row_ids()
        return dict.fromkeys(wanted) | {
            name: AdoptedTable(plan, first.get(plan.table.table_id, 0), frozenset(f.data_file_id for f in late[name]))
            for name, plan in plans.items()
        }

    def _config(self) -> LakeConfig:
        catalog = SQLiteCatalog(path=self._folder / _FILE)
        # Not read-only: a stage can also be read in a lake that is opened for reading.
        changes = {"catalog": catalog, "create_if_missing": True, "data_inlining_row_limit": 0, "read_only": False}
        none = dict.fromkeys(("metadata_schema", "automatic_migration"))
        return self.lake.model_copy(update=changes | none | {"options": {}, "attach_options": {}, "workload": False})

    def _create(self, write: Write, at: int | None) -> SnapshotRow:
        """Create the catalog with a snapshot of the lake, its schemas, views and options; return the snapshot."""
        creates = self.lake.create_if_missing
        with planning(self.lake, "Beginning a transaction", self._session, reads=not creates) as metadata:
            if metadata.format != FORMAT:
                raise only_read(self.lake.name)
            if at is None:  # what is staged is committed later
                refuse_without_message(write.purpose, write.info, required=metadata.requires_message())
            base = metadata.latest() if at is None else metadata.snapshot(at)
            if base is None:
                raise _expired(at)
            copies, mark = lake_rows(metadata, base), metadata.lake_mark()
        self._create_catalog()
        with self._writing() as con:
            replace_lake_rows(con, self.config, copies, mark)
        return base

    def _create_catalog(self) -> None:
        """Create the file of the draft; DuckLake needs 60 ms to create one, so later ones are copies of the first."""
        file = self._folder / _FILE
        if (empty := _EMPTY.get(duckdb.__version__)) is not None:
            file.write_bytes(empty)
            return
        access = Access(self.config.read_only, self.config.snapshot, self.config.as_of, is_draft=True)
        with open_session(self.config, access, entering=False):
            pass
        _EMPTY[duckdb.__version__] = file.read_bytes()

    @contextmanager
    def _writing(self) -> Iterator[LakeConnection]:
        """Write metadata tables of the draft in a transaction."""
        with open_metadata(self.config, read_only=False, trusted=True) as con:
            con.execute("BEGIN")
            yield con
            con.execute("COMMIT")


def _expired(base: int | None) -> ConflictError:
    return ConflictError(
        f"Snapshot {base}, from which the transaction began, has expired.", remedy="Run the transaction again."
    )
