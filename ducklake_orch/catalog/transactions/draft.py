"""The draft of a transaction: a private catalog in which its verbs run before they are committed to the lake.

A draft is a SQLite catalog in a temporary folder. It holds the tables that the transaction uses, as they were at its
base snapshot, and refers to the lake's own files; new files go into the lake's folders. So every verb and every reader
works in a draft as it does in the lake, and other programs see nothing of it.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb

from ducklake_orch.catalog.commit import TableChange, begin_recording, end_recording
from ducklake_orch.catalog.metadata import SnapshotRow, TableDef
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
from ducklake_orch.engine.exactly_once import Write, refuse_without_message
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.engine.session import open_session
from ducklake_orch.errors import ConflictError


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

    Attributes:
        lake: The lake.
        config: The draft, as a lake of its own.
        base: The snapshot that the draft begins from.
        recording: What the verbs do in the draft.
        tables: The tables that were looked for, by the keys of their names; None for a name that no table has.
    """

    def __init__(self, lake: LakeConfig, write: Write, base: int | None = None) -> None:
        self.lake = lake
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
        if wanted.key not in self.tables:
            self.tables[wanted.key] = self._adopted(wanted)
        return self.tables[wanted.key]

    def adopt_all(self) -> None:
        """Copy all tables of the base snapshot."""
        with planning(self.lake, "Listing tables for a transaction", reads=True) as metadata:
            names = metadata.table_names(self.base.snapshot_id)
        for schema, table in names:
            self.adopt(TableName(schema, table))

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

    def _adopted(self, wanted: TableName) -> AdoptedTable | None:
        with planning(self.lake, f"Reading `{wanted}` for a transaction", reads=True) as metadata:
            if metadata.snapshot(self.base.snapshot_id) is None:
                raise _expired(self.base.snapshot_id)
            table = metadata.find_table(wanted, self.base.snapshot_id)
            if table is None:
                return None
            plan = plan_rows(metadata, table, self.base, None, values=False)
            late = late_files(plan)
            copies = table_rows(metadata, plan, self.config, late)
        hidden = hidden_rows(self.lake, plan, late)
        with self._writing() as con:
            create_inlined(con, self.config, plan, copies, hidden)
            copies.insert(con, self.config)
        rows = copies.tables["ducklake_table_stats"].column("next_row_id").to_pylist()
        return AdoptedTable(plan, int(rows[0]) if rows else 0, frozenset(file.data_file_id for file in late))

    def _config(self) -> LakeConfig:
        catalog = SQLiteCatalog(path=self._folder / "draft.sqlite")
        # Not read-only: a stage can also be read in a lake that is opened for reading.
        changes = {"catalog": catalog, "create_if_missing": True, "data_inlining_row_limit": 0, "read_only": False}
        none = dict.fromkeys(("metadata_schema", "automatic_migration"))
        return self.lake.model_copy(update=changes | none | {"options": {}, "attach_options": {}})

    def _create(self, write: Write, at: int | None) -> SnapshotRow:
        """Create the catalog with a snapshot of the lake, its schemas, views and options; return the snapshot."""
        with planning(self.lake, "Beginning a transaction", reads=not self.lake.create_if_missing) as metadata:
            if at is None:  # what is staged is committed later
                refuse_without_message(write.purpose, write.info, required=metadata.requires_message())
            base = metadata.latest() if at is None else metadata.snapshot(at)
            if base is None:
                raise _expired(at)
            copies, mark = lake_rows(metadata, base), metadata.lake_mark()
        with self._writing() as con:
            replace_lake_rows(con, self.config, copies, mark)
        return base

    @contextmanager
    def _writing(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Write metadata tables of the draft in a transaction."""
        with open_session(self.config, entering=False) as session, session.instance.one_thread():
            with closing(session.instance.root.cursor()) as con:
                con.execute("BEGIN")
                yield con
                con.execute("COMMIT")


def _expired(base: int | None) -> ConflictError:
    return ConflictError(
        f"Snapshot {base}, from which the transaction began, has expired.", remedy="Run the transaction again."
    )
