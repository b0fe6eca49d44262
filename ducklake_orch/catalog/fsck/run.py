"""Run the checks over a copy of the catalog and report their findings. `fsck` is the entry point."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ducklake_orch.catalog.fsck import (
    change_checks,
    deep_checks,
    delete_checks,
    file_checks,
    inlined_checks,
    object_checks,
    snapshot_checks,
    statistics_checks,
    storage_checks,
)
from ducklake_orch.catalog.fsck.check import UNPROVEN, Check
from ducklake_orch.catalog.fsck.contents import read_contents, read_shared_deletes
from ducklake_orch.catalog.fsck.footers import read_footers
from ducklake_orch.catalog.fsck.local_copy import LocalCopy, copy_metadata
from ducklake_orch.catalog.fsck.proofs import prove_files
from ducklake_orch.catalog.fsck.repair import query_files, run_repairs
from ducklake_orch.catalog.fsck.repairs import Rows
from ducklake_orch.catalog.fsck.row_snapshots import read_row_snapshots
from ducklake_orch.catalog.fsck.storage import list_storage
from ducklake_orch.catalog.fsck.vectors import read_deletion_vectors
from ducklake_orch.catalog.metadata import naming_damage
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.maintenance import TablePattern
from ducklake_orch.engine.exactly_once import refuse_read_only
from ducklake_orch.engine.quoting import literal
from ducklake_orch.engine.session import open_metadata
from ducklake_orch.errors import ConfigError
from ducklake_orch.results import Finding, FsckReport

# How many findings of each code are listed; further ones are only counted.
EXAMPLES = 20
FORMAT = snapshot_checks.FORMAT_CHECKS
CATALOG = [
    *snapshot_checks.CHECKS,
    *change_checks.CHECKS,
    *object_checks.CHECKS,
    *file_checks.CHECKS,
    *delete_checks.CHECKS,
    *inlined_checks.CHECKS,
    *statistics_checks.CHECKS,
]
PRESENCE = deep_checks.PRESENCE_CHECKS
DEEP = deep_checks.CHECKS
STORAGE = storage_checks.CHECKS
ALL: list[Check] = [*FORMAT, *CATALOG, *PRESENCE, *DEEP, *STORAGE]


@dataclass
class Findings:
    """The findings: the first examples of each code, and how many there are."""

    listed: list[Finding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def run(self, copy: LocalCopy, checks: Sequence[Check]) -> "Findings":
        """Run checks over the copy, all in one query."""
        rows = copy.con.execute(_examples_sql(copy, checks)).fetchall()
        for check in checks:
            examples = [row for row in rows if row[0] == check.code]
            if examples:
                self.counts[check.code] = int(examples[0][5])
            self.listed += [_finding(check, *row[1:5]) for row in examples]
        return self


def _finding(check: Check, table: str | None, file: str | None, detail: str, unproven: bool) -> Finding:
    remedy = UNPROVEN if unproven else check.remedy
    repairable = check.repairable and not unproven
    return Finding(check.code, check.severity, table, file, check.effect, remedy, repairable, detail=str(detail))


def _examples_sql(copy: LocalCopy, checks: Sequence[Check]) -> str:
    parts = [
        f"SELECT {literal(check.code)}, *, {_unproven_sql(check)} FROM ({check.sql}) q(table_id, file, detail)"
        for check in checks
    ]
    union = " UNION ALL ".join(parts).replace("{data_path}", literal(copy.data_path))
    everywhere = copy.chosen is None or checks is FORMAT  # an unknown format concerns every table
    chosen = "" if everywhere else f"WHERE table_id IN ({', '.join(map(str, copy.chosen or ()))})"
    return f"""
        SELECT code, coalesce(t.name, 'table ' || table_id) AS name, file, detail, unproven,
               count(*) OVER (PARTITION BY code)
        FROM ({union}) q(code, table_id, file, detail, unproven) LEFT JOIN known_table t USING (table_id) {chosen}
        QUALIFY row_number() OVER (PARTITION BY code ORDER BY name, file, detail) <= {EXAMPLES}
        ORDER BY name, file, detail"""


def _unproven_sql(check: Check) -> str:
    return f"file IN (SELECT full_path FROM {check.proof})" if check.proof else "false"


def inspect(copy: LocalCopy, *, deep: bool = False, storage: bool = False, repair: bool = False) -> Findings:
    """Check a lake through a copy of its catalog.

    Args:
        copy: The copy.
        deep: Whether to read the files.
        storage: Whether to list the storage.
        repair: Whether to read the files that repairs take values from, even if not `deep`.
    """
    found = Findings().run(copy, FORMAT)
    if found.counts:
        return found
    if deep:
        read_footers(copy)
        read_contents(copy)
        read_deletion_vectors(copy)
        read_row_snapshots(copy)
    elif repair and copy.count("shared_delete"):
        read_shared_deletes(copy)
    prove_files(copy)
    if storage:
        list_storage(copy)
    found.run(copy, CATALOG)
    if deep or storage:
        found.run(copy, PRESENCE)
    if deep:
        found.run(copy, DEEP)
    if storage:
        found.run(copy, STORAGE)
    return found


@contextmanager
def open_copy(config: LakeConfig, tables: Sequence[TablePattern] | None = None) -> Iterator[LocalCopy]:
    """Copy the catalog of a lake as of one moment; works even if the engine cannot open the lake.

    Args:
        config: The lake.
        tables: Only tables with these names or patterns.
    """
    with open_metadata(config) as con:
        con.execute("USE memory")
        con.execute("BEGIN")
        copy = copy_metadata(con.unwrap(), config, tables)
        con.execute("COMMIT")
        yield copy


def fsck(
    config: LakeConfig,
    *,
    deep: bool = False,
    storage: bool = False,
    repair: bool = False,
    tables: Sequence[TablePattern] | None = None,
) -> FsckReport:
    """Find the broken states of a lake, and repair them if requested; see `DuckLake.fsck`."""
    if repair and tables is not None:
        raise ConfigError("A repair covers the whole lake.", remedy="Leave out `tables` or `repair`.")
    with naming_damage(config, f"Checking lake `{config.name}`", lambda: open_metadata(config)):
        return _fsck(config, deep, storage, repair, tables)


def _fsck(
    config: LakeConfig, deep: bool, storage: bool, repair: bool, tables: Sequence[TablePattern] | None
) -> FsckReport:
    if repair:
        refuse_read_only(config, "repairing")
    report, known = _report(config, deep, storage, repair, tables, to_repair=repair)
    if not repair or not any(finding.repairable for finding in report.findings):
        return report
    snapshot = run_repairs(config, known)
    after, _ = _report(config, deep, storage, repair, tables, to_repair=False)
    left = set(after.findings)
    repaired = [finding for finding in report.findings if finding.repairable and finding not in left]
    return replace(after, repaired=repaired, repair_snapshot=snapshot)


def _report(
    config: LakeConfig,
    deep: bool,
    storage: bool,
    repair: bool,
    tables: Sequence[TablePattern] | None,
    *,
    to_repair: bool,
) -> tuple[FsckReport, dict[str, Rows]]:
    started = time.monotonic()
    with open_copy(config, tables) as copy:
        found = inspect(copy, deep=deep, storage=storage, repair=repair)
        checked: dict[str, Any] = {
            "snapshot": copy.number("SELECT max(snapshot_id) FROM ducklake_snapshot"),
            "tables": copy.count("known_table WHERE ended_at IS NULL") if tables is None else len(copy.chosen or ()),
            "data_files": copy.count("ducklake_data_file"),
            "delete_files": copy.count("ducklake_delete_file"),
            "inlined_rows": copy.count("inlined_row"),
            "inlined_deletes": copy.count("inlined_delete"),
        }
        if deep:
            checked["files_read"] = copy.count("footer")
        if storage:
            checked["objects_listed"] = copy.count("listed")
        known = query_files(copy) if to_repair else {}
    checked["seconds"] = round(time.monotonic() - started, 3)
    return FsckReport(found.listed, checked, found.counts), known
