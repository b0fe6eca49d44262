"""A stage as the catalog stores it, and the texts in which its parts are stored."""

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

from pydantic import TypeAdapter

from ducklake_orch.catalog.transactions.stored_change import StoredChange
from ducklake_orch.engine.quoting import TableName, table_name
from ducklake_orch.errors import CatalogDamagedError
from ducklake_orch.results import StagedTable

T = TypeVar("T")
# The most bytes of one change; a million files take half of that.
_LONGEST = 1024**3


@dataclass(frozen=True)
class StageHead:
    """What a stage is.

    Attributes:
        stage_id: Distinguishes it from other stages that had or will have its name.
        lake: The mark of its lake: a lake that is created anew in the same catalog has other stages.
        base_snapshot: The snapshot that its verbs see, with what was staged since.
        author: Who created it.
        snapshot_id: The snapshot that it was published as.
        previous_snapshot: The snapshot before that one; the same if there was nothing to publish.
        published: The keys of what it published, by write id.
        tables: What it published of each table.
    """

    stage_id: str
    lake: str
    name: str
    base_snapshot: int
    created: datetime
    expires: datetime
    author: str | None = None
    snapshot_id: int | None = None
    previous_snapshot: int | None = None
    published: Mapping[str, str | None] = field(default_factory=dict)
    tables: tuple[StagedTable, ...] = ()


@dataclass(frozen=True)
class StoredTable:
    """The net change of a table, read only where it is needed.

    Attributes:
        version: The id of the write that stored it.
        text: The change as it is stored.
    """

    version: str
    text: str = field(repr=False)

    @cached_property
    def change(self) -> StoredChange:
        """The net change."""
        return _decoded(_CHANGES, self.text)

    @property
    def summary(self) -> StagedTable:
        """The figures of the change."""
        change = self.change
        return StagedTable(
            table=str(change.name),
            rows_added=change.rows_added,
            rows_removed=change.rows_removed,
            files=len(change.files),
            bytes=change.bytes,
            is_dropped=change.drops,
        )


@dataclass(frozen=True)
class StoredWork:
    """What one block of verbs staged.

    Attributes:
        write_id: The id of the write that stored it.
        key: The idempotency key and what it covers.
        write_ids: The ids that are part of the names of its files.
        files: The paths of the files that it wrote. Later work may have replaced them, but running tasks read them.
        replays: Whether work with the key must not be done twice.
    """

    write_id: str
    key: str | None
    write_ids: tuple[str, ...]
    files: tuple[str, ...]
    replays: bool = True


@dataclass(frozen=True)
class StoredStage:
    """A stage.

    Attributes:
        version: The id of the write that changed it last.
        is_past: Whether its time is over, by the catalog's clock.
        tables: The tables that it changes, by the hash of their names' keys.
        works: What was staged, by write id; the tables tell what it amounts to.
    """

    head: StageHead
    version: str
    is_past: bool
    tables: Mapping[str, StoredTable] = field(default_factory=dict)
    works: Mapping[str, StoredWork] = field(default_factory=dict)

    def table(self, name: TableName) -> StoredTable | None:
        """Return what it did to a table; None if nothing."""
        return self.tables.get(hash_of(str(name.key)))

    def versions(self, tables: Iterable[TableName]) -> dict[TableName, str | None]:
        """Return the version of each table; None for one that it does not change."""
        return {name: found.version if (found := self.table(name)) else None for name in tables}

    @property
    def keys(self) -> dict[str, str | None]:
        """The idempotency keys of everything that was staged, by write id."""
        return {**self.head.published, **{write_id: work.key for write_id, work in self.works.items()}}

    def table_keys(self) -> dict[TableName, dict[str, bool]]:
        """Return the idempotency keys of single tables, by the keys of their names, each with whether it replays."""
        found: dict[TableName, dict[str, bool]] = {}
        for write_id, scoped in self.keys.items():
            table, key = parsed_key(scoped) if scoped is not None else (None, "")
            if table is not None:
                found.setdefault(table, {})[key] = write_id not in self.works or self.works[write_id].replays
        return found

    @property
    def summaries(self) -> list[StagedTable]:
        """The figures of each table that it changes, or that it has published, by name."""
        return sorted(self.head.tables or (table.summary for table in self.tables.values()), key=lambda one: one.table)

    @property
    def own_files(self) -> list[str]:
        """The paths of all files that were written for it, without those of other programs."""
        return sorted({path for work in self.works.values() for path in work.files})


_HEADS, _CHANGES, _WORKS = TypeAdapter(StageHead), TypeAdapter(StoredChange), TypeAdapter(StoredWork)
_ADAPTERS: dict[type, TypeAdapter[Any]] = {StageHead: _HEADS, StoredChange: _CHANGES, StoredWork: _WORKS}


def text_of(value: StageHead | StoredChange | StoredWork) -> str:
    """Return the text in which a part is stored."""
    return base64.b64encode(zlib.compress(_ADAPTERS[type(value)].dump_json(value))).decode()


def head_of(text: str) -> StageHead:
    """Return what a stage is, from its text."""
    return _decoded(_HEADS, text)


def work_of(text: str) -> StoredWork:
    """Return what one block of verbs staged, from its text."""
    return _decoded(_WORKS, text)


def _decoded(adapter: TypeAdapter[T], text: str) -> T:
    """Return a value from its text.

    Raises:
        CatalogDamagedError: When the text is not what `text_of` has written.
    """
    try:
        # The length is limited, because few bytes can stand for very many.
        return adapter.validate_json(zlib.decompressobj().decompress(base64.b64decode(text), _LONGEST))
    except (ValueError, zlib.error) as error:
        failure = damaged_stage(type(error).__name__)
    raise failure


def damaged_stage(why: str) -> CatalogDamagedError:
    """Return the error for rows of a stage that cannot be read."""
    return CatalogDamagedError(
        f"A stage in the table `ducklake_orch_stages` of the catalog is damaged ({why}).",
        remedy="Restore its rows from a backup of the catalog, or delete them and stage the work again.",
    )


def hash_of(name: str) -> str:
    """Return what stands for a name in the catalog, which is short and compared exactly."""
    return hashlib.sha256(name.encode()).hexdigest()


def scoped_key(key: str | None, table: TableName | None = None) -> str | None:
    """Return an idempotency key with what it covers: a table, or everything that a block stages."""
    return None if key is None else json.dumps([str(table.key) if table else None, key])


def parsed_key(scoped: str) -> tuple[TableName | None, str]:
    """Return what a key covers, as `scoped_key` got it, and the key."""
    table, key = json.loads(scoped)
    return table_name(table).key if table is not None else None, key
