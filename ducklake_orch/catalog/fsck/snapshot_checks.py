"""Checks of the snapshots: the counters that the next commit continues, and the changes that decide about conflicts."""

import re

from ducklake_orch.catalog.fsck.check import Check
from ducklake_orch.engine.formats import FORMAT, NEWER_FORMAT

_NAME = r'"(?:[^"]|"")*"'
# A change that the engine can read; a comma inside quotes belongs to the name.
TOKEN = (
    rf"(?:created_schema:{_NAME}"
    rf"|created_(?:table|view|scalar_macro|table_macro):{_NAME}\.{_NAME}"
    r"|dropped_(?:schema|table|view|scalar_macro|table_macro):\d+"
    r"|(?:inserted_into_table|deleted_from_table|altered_table|altered_view|inlined_insert|inlined_delete|inline_flush"
    r"|flushed_inlined|merge_adjacent|rewrite_delete|compacted_table):\d+)"
)
# All that the engine can read in `changes_made`.
CHANGES = rf"(?:{TOKEN}(?:,{TOKEN})*,?)?"

_FORMAT_ROW = "(SELECT max(value) AS value FROM ducklake_metadata WHERE key = 'version' AND scope IS NULL)"
_BETWEEN_COMMAS = re.compile(rf'(?:[^",]|{_NAME})+')


def readable(changes: str) -> str:
    """Return the changes that the engine can read."""
    parts = _BETWEEN_COMMAS.findall(changes)
    return ",".join(part for part in parts if re.fullmatch(TOKEN, part, re.IGNORECASE))


FORMAT_CHECKS = [
    Check(
        "unknown-format",
        "error",
        "Neither the engine nor ducklake-orch can read this catalog format; no other check ran.",
        "Use versions of DuckLake and ducklake-orch that support the format, or back up the catalog and migrate it"
        " with `automatic_migration=True`.",
        sql=f"""
            SELECT NULL, NULL, 'the catalog says ' || coalesce('format ' || value, 'no format')
            FROM {_FORMAT_ROW}
            WHERE value IS NULL OR value NOT IN ('{FORMAT}', '{NEWER_FORMAT}')""",
    ),
    Check(
        "missing-metadata-table",
        "error",
        "Every operation that needs the table fails. The lake may be only partly created.",
        "If another process is creating the lake, wait for it; otherwise restore the catalog from a backup.",
        sql="SELECT NULL, NULL, table_name FROM missing_table",
    ),
    Check(
        "no-snapshot",
        "error",
        "The lake cannot be opened: `No snapshot found in DuckLake`.",
        "If another process is creating the lake, wait for it; otherwise restore the catalog from a backup.",
        sql="SELECT NULL, NULL, 'ducklake_snapshot is empty' FROM range(1) WHERE NOT EXISTS (FROM ducklake_snapshot)",
    ),
]


def _behind(counter: str, numbers: str, effect: str, beyond: str = "") -> Check:
    return Check(
        f"{counter.replace('_', '-')}-behind",
        "error",
        effect,
        "`repair=True` commits a snapshot with a counter that is high enough.",
        repairable=True,
        sql=f"""
            SELECT NULL, NULL, '{counter} is ' || {counter} || ', but ' || thing || ' ' || id || ' exists'
            FROM latest, (FROM {numbers} ORDER BY id DESC LIMIT 1) WHERE id > {counter} {beyond}""",
    )


CHECKS = [
    Check(
        "snapshot-without-changes",
        "warning",
        "Concurrent commits do not detect conflicts with this snapshot.",
        "Nothing, once all writers that were open at the time have ended. Find the program that commits without a row"
        " in ducklake_snapshot_changes.",
        sql="""
            SELECT NULL, NULL, 'snapshot ' || snapshot_id FROM ducklake_snapshot
            ANTI JOIN ducklake_snapshot_changes USING (snapshot_id)""",
    ),
    Check(
        "changes-without-snapshot",
        "info",
        "None yet; the commit that reaches this snapshot id will fail.",
        "`repair=True` removes the row.",
        repairable=True,
        sql="""
            SELECT NULL, NULL, 'snapshot ' || snapshot_id FROM ducklake_snapshot_changes
            ANTI JOIN ducklake_snapshot USING (snapshot_id)""",
    ),
    Check(
        "tag-without-snapshot",
        "warning",
        "Reads and rollbacks to the tag fail. Another program has expired its snapshot.",
        "Remove the tag by `untag`. Expire snapshots by ducklake-orch only, which retains those that have one.",
        sql="""
            SELECT NULL, NULL, 'tag ' || name || ' of snapshot ' || snapshot_id FROM ducklake_orch_tags
            ANTI JOIN ducklake_snapshot USING (snapshot_id)""",
    ),
    Check(
        "unknown-change-token",
        "error",
        "`ducklake_snapshots()` fails, and so does every commit that is checked against a concurrent one.",
        "`repair=True` removes the changes that the engine cannot read. Find the program that wrote them.",
        repairable=True,
        sql=f"""
            SELECT NULL, NULL, 'snapshot ' || snapshot_id || ': ' || left(changes_made, 200)
            FROM ducklake_snapshot_changes WHERE NOT regexp_full_match(changes_made, $${CHANGES}$$, 'i')
                 AND '{FORMAT}' = (FROM {_FORMAT_ROW})""",
    ),
    _behind(
        "next_file_id",
        "file_number",
        "The next file gets an id that is already in use: commits fail, or name mappings are mixed up.",
        "- 1",
    ),
    _behind(
        "next_catalog_id",
        "catalog_number",
        "The next table, view or layout gets an id that is already in use and is confused with the object that has it.",
        "- 1",
    ),
    _behind(
        "schema_version",
        "(SELECT 'version' AS thing, schema_version AS id FROM ducklake_schema_versions)",
        "The next change of a table gets a schema version that is already in use: inlined rows of two schemas share a"
        " table.",
    ),
    Check(
        "next-file-id-not-bumped",
        "error",
        "Connections that were already open keep the old statistics of the table: queries with a WHERE miss rows.",
        "`repair=True` commits a snapshot with a new `next_file_id`. Find the program that adds files without raising"
        " it.",
        repairable=True,
        sql="""
            SELECT f.table_id, f.full_path,
                   'began with snapshot ' || f.begin_snapshot || ', next_file_id is that of snapshot ' || same.since
            FROM known_path f, latest, (SELECT min(snapshot_id) AS since FROM ducklake_snapshot
                                WHERE next_file_id = (SELECT next_file_id FROM latest)) same
            WHERE f.begin_snapshot > same.since AND f.begin_snapshot <= latest.snapshot_id
                  AND f.end_snapshot IS NULL""",
    ),
    Check(
        "schema-version-not-bumped",
        "error",
        "Connections that were already open keep using the old tables and columns.",
        "`repair=True` commits a snapshot with a new `schema_version`. Find the program that changes tables without"
        " raising it.",
        repairable=True,
        sql="""
            SELECT table_id, NULL, what || ' changed with snapshot ' || changed
                   || ', schema_version is that of snapshot ' || same.since
            FROM (SELECT *, greatest(begin_snapshot, end_snapshot) AS changed FROM life WHERE ddl), latest,
                 (SELECT min(snapshot_id) AS since FROM ducklake_snapshot
                  WHERE schema_version = (SELECT schema_version FROM latest)) same
            WHERE changed > same.since AND changed <= latest.snapshot_id""",
    ),
    Check(
        "not-committed",
        "error",
        "Readers do not see the change yet; the commit that gets this snapshot id puts it into effect.",
        "Find the program that writes metadata without its snapshot, and correct the row. fsck repairs nothing until"
        " then, because every repair commits a snapshot.",
        sql="""
            SELECT table_id, file, what || ' ' || CASE WHEN begin_snapshot > latest.snapshot_id
                       THEN 'begins with snapshot ' || begin_snapshot ELSE 'ends with snapshot ' || end_snapshot END
                   || ', the latest is ' || latest.snapshot_id
            FROM life, latest WHERE greatest(begin_snapshot, end_snapshot) > latest.snapshot_id""",
    ),
    Check(
        "ends-before-it-begins",
        "error",
        "No snapshot contains the object, so readers never see it.",
        "Determine which snapshot was intended, and correct the row in the catalog.",
        sql="""
            SELECT table_id, file, what || ' begins with snapshot ' || begin_snapshot || ' and ends with '
                   || end_snapshot
            FROM life WHERE end_snapshot < begin_snapshot""",
    ),
]
