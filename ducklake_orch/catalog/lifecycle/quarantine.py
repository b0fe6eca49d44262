"""The quarantine of orphans: a folder in the lake's storage where they stay for a time, before they are deleted.

`<data path>/ducklake_orch_quarantine/<day>/<path>` is the file that was `<data path>/<path>` until that day. A file is
copied and then deleted, because object stores cannot rename. If a process dies in between, the next run does it again.
"""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import duckdb

from ducklake_orch.catalog.metadata import QUARANTINE_FOLDER
from ducklake_orch.catalog.search import planning
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.bulk_delete import delete_files
from ducklake_orch.engine.error_classes import classify, run
from ducklake_orch.engine.exactly_once import refuse_read_only
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.quoting import exactly, file_literal, file_literals, literal
from ducklake_orch.errors import ObjectExistsError, ObjectNotFoundError, StorageBusyError
from ducklake_orch.results import Result

_AT_ONCE = 8
_FILES_IN_ONE_QUERY = 1000


@dataclass(frozen=True)
class QuarantinedFile(Result):
    """A file in quarantine.

    Attributes:
        path: Where it was.
        place: Where it is.
        size: Its size in bytes.
        since: The day on which it was moved.
    """

    path: str
    place: str
    size: int
    since: date


@dataclass(frozen=True)
class Quarantine:
    """The quarantine of a lake.

    Attributes:
        config: The lake.
        root: Its data path, with a closing slash.
    """

    config: LakeConfig
    root: str

    @staticmethod
    def of(config: LakeConfig) -> "Quarantine":
        """Return the quarantine of a lake."""
        with planning(config, f"Looking for files in quarantine of lake `{config.name}`", reads=True) as metadata:
            return Quarantine(config, metadata.data_path())

    def place(self, path: str, day: date) -> str:
        """Return where a file is in quarantine."""
        return f"{self.root}{QUARANTINE_FOLDER}{day.isoformat()}/{path.removeprefix(self.root)}"

    def contains(self, path: str) -> bool:
        """Return whether a file is in quarantine."""
        return path.startswith(f"{self.root}{QUARANTINE_FOLDER}")

    def files(self) -> list[QuarantinedFile]:
        """List the files, the oldest first."""
        doing = f"Listing the quarantine of lake `{self.config.name}` failed"
        pattern = literal(f"{exactly(self.root)}{QUARANTINE_FOLDER}**")
        found = []
        with working_connection(self.config) as con:
            rows = run(con, f"SELECT file FROM glob({pattern})", self.config, doing).fetchall()
            listed = sorted(str(row[0]) for row in rows)
            for start in range(0, len(listed), _FILES_IN_ONE_QUERY):
                names = file_literals(listed[start : start + _FILES_IN_ONE_QUERY])
                sizes = run(con, f"SELECT filename, size FROM read_blob([{names}])", self.config, doing).fetchall()
                found += [self._file(str(path), int(size)) for path, size in sizes]
        return sorted(found, key=lambda file: (file.since, file.path))

    def _file(self, place: str, size: int) -> QuarantinedFile:
        day, _, path = place.removeprefix(f"{self.root}{QUARANTINE_FOLDER}").partition("/")
        return QuarantinedFile(f"{self.root}{path}", place, size, date.fromisoformat(day))

    def take_in(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Move files into quarantine; return the reason for each one that could not be moved."""
        today = datetime.now(UTC).date()
        return self._move({path: self.place(path, today) for path in paths})

    def release(self, paths: Collection[str] | None) -> list[QuarantinedFile]:
        """Move files back to where they were.

        Args:
            paths: Where they were; None for all files.
        """
        known = {file.path: file for file in self.files()}
        chosen = list(known.values()) if paths is None else []
        for path in paths or ():
            if path not in known:
                raise ObjectNotFoundError(f"{path} is not in quarantine.", remedy=nearest(path, list(known)))
            chosen.append(known[path])
        with working_connection(self.config) as con:
            for file in chosen:
                # A name without wildcards is not looked up on an object store.
                there = f"FROM glob({literal(f'{exactly(file.path)}*')}) WHERE file = {literal(file.path)}"
                if con.execute(there).fetchone():
                    raise ObjectExistsError(f"There is a file {file.path} again.", remedy="Move it elsewhere first.")
        failed = self._move({file.place: file.path for file in chosen})
        if failed:
            place, reason = next(iter(failed.items()))
            raise StorageBusyError(f"{len(failed)} files stay in quarantine, such as {place}: {reason}.")
        return chosen

    def _move(self, places: Mapping[str, str]) -> dict[str, str]:
        """Move files; return the reason for each one that could not be moved."""
        failed, copied = dict[str, str](), list[str]()
        for path, place in places.items():
            if "://" not in path:
                try:
                    Path(place).parent.mkdir(parents=True, exist_ok=True)
                    Path(path).replace(place)
                except OSError as error:
                    failed[path] = error.strerror or str(error)
        remote = {path: place for path, place in places.items() if "://" in path}
        if not remote:
            return failed
        with working_connection(self.config, apart=True) as con, ThreadPoolExecutor(_AT_ONCE) as pool:
            reasons = pool.map(lambda pair: self._copy(con, *pair), remote.items())
            for path, reason in zip(remote, reasons, strict=True):
                if reason is None:
                    copied.append(path)
                else:
                    failed[path] = reason
        return failed | dict(delete_files(self.config, copied))

    def _copy(self, con: duckdb.DuckDBPyConnection, path: str, place: str) -> str | None:
        """Copy an object; return why it could not be copied, if it could not."""
        sizes = "SELECT size FROM read_blob([{}])"
        try:
            with closing(con.cursor()) as cursor:
                source = file_literal(path)
                cursor.execute(f"COPY (SELECT content FROM read_blob({source})) TO {literal(place)} (FORMAT BLOB)")
                both = cursor.execute(sizes.format(f"{source}, {file_literal(place)}")).fetchall()
        except duckdb.Error as error:
            return classify(error, self.config, "copying it failed").message
        return None if len(both) == 2 and both[0] == both[1] else "the copy has another size"


def quarantined(config: LakeConfig, before: date | None = None) -> list[QuarantinedFile]:
    """List the files in quarantine, the oldest first.

    Args:
        config: The lake.
        before: Only files that were moved before this day.
    """
    return [file for file in Quarantine.of(config).files() if before is None or file.since < before]


def delete_quarantined(config: LakeConfig, places: Sequence[str]) -> tuple[list[str], Mapping[str, str]]:
    """Delete those of some files that are in quarantine.

    Returns:
        The deleted files, and the reason for each one that could not be deleted.
    """
    quarantine = Quarantine.of(config)
    held = [place for place in places if quarantine.contains(place)]
    failed = delete_files(config, held)
    return [place for place in held if place not in failed], failed


def release_quarantined(config: LakeConfig, paths: Collection[str] | None) -> list[QuarantinedFile]:
    """Move files in quarantine back to where they were; None for all of them."""
    refuse_read_only(config, "moving files out of quarantine")
    return Quarantine.of(config).release(paths)
