"""Checks of `changes_made` against the catalog rows that begin and end with each snapshot: every change is recorded."""

from ducklake_orch.catalog.fsck.check import Check

# What each kind of change implies: which catalog rows begin with its snapshot, and which end.
_DELETING = ("file ends", "row ends", "deletion begins", "deletion ends")
_MOVING = ("file begins", *_DELETING)
_IMPLIED_EVENTS = {
    "inserted_into_table": ("file begins", "row begins"),
    "inlined_insert": ("file begins", "row begins"),
    "deleted_from_table": _DELETING,
    "inlined_delete": _DELETING,
    "dropped_table": ("file ends", "row ends", "deletion ends"),
    **dict.fromkeys(
        ("inline_flush", "flushed_inlined", "merge_adjacent", "rewrite_delete", "compacted_table"), _MOVING
    ),
}
_VALUES = ", ".join(f"('{kind}', '{event}')" for kind, events in _IMPLIED_EVENTS.items() for event in events)

VIEWS = [
    # The recorded changes of the snapshots, by table. A quoted name may resemble a change.
    r"""CREATE TEMP TABLE change_token AS
        SELECT snapshot_id, split_part(change, ':', 1) AS kind, TRY_CAST(split_part(change, ':', 2) AS BIGINT) AS id
        FROM (SELECT snapshot_id, unnest(regexp_extract_all(
                  regexp_replace(lower(changes_made), '"[^"]*"', '', 'g'), '[a-z_]+:\d*')) AS change
              FROM ducklake_snapshot_changes SEMI JOIN ducklake_snapshot USING (snapshot_id))""",
    # Every catalog row that begins or ends with a retained snapshot that has recorded changes.
    """CREATE TEMP VIEW event AS
        SELECT snapshot_id, table_id, file, what, CASE WHEN ddl THEN 'definition' WHEN what = 'data file' THEN 'file'
               WHEN starts_with(what, 'inlined row') THEN 'row' ELSE 'deletion' END || how AS event
        FROM (SELECT *, begin_snapshot AS snapshot_id, ' begins' AS how FROM life
              UNION ALL SELECT *, end_snapshot, ' ends' FROM life WHERE end_snapshot IS NOT NULL)
        SEMI JOIN ducklake_snapshot USING (snapshot_id) SEMI JOIN ducklake_snapshot_changes USING (snapshot_id)
        WHERE snapshot_id > 0""",
    f"""CREATE TEMP VIEW recorded_event AS
        SELECT DISTINCT snapshot_id, id AS table_id, event FROM change_token JOIN (VALUES {_VALUES}) v(kind, event)
               USING (kind)
        UNION SELECT c.snapshot_id, t.table_id, v.event FROM change_token c
              JOIN known_table t ON t.schema_id = c.id AND c.kind = 'dropped_schema'
              JOIN (VALUES {_VALUES}) v(kind, event) ON v.kind = 'dropped_table'
        -- Rows that one transaction inserts and deletes count as part of its insert.
        UNION SELECT d.begin_snapshot, d.table_id, 'deletion begins' FROM ducklake_delete_file d
              JOIN ducklake_data_file f USING (data_file_id) WHERE f.begin_snapshot = d.begin_snapshot""",
    """CREATE TEMP VIEW unrecorded_event AS
        SELECT * FROM event ANTI JOIN recorded_event USING (snapshot_id, table_id, event)
        WHERE NOT starts_with(event, 'definition')
        UNION ALL SELECT * FROM event ANTI JOIN (
            FROM change_token WHERE regexp_matches(kind, '^(created|altered|dropped)_')) c USING (snapshot_id)
        WHERE starts_with(event, 'definition')""",
    # Recorded deletions without a trace in the catalog, although the snapshot before is retained and sees the rows. A
    # replacing write of ducklake-orch records a deletion even if it found no rows; it records an inlined deletion, too,
    # only if rows were deleted. A flush records deletions that it only moves.
    """CREATE TEMP VIEW lost_deletion AS
        SELECT c.snapshot_id, c.id AS table_id FROM change_token c
        SEMI JOIN ducklake_snapshot before ON before.snapshot_id = c.snapshot_id - 1
        ANTI JOIN (SELECT snapshot_id, id FROM change_token GROUP BY ALL
                   HAVING bool_or(kind IN ('inlined_insert', 'inline_flush', 'flushed_inlined'))
                          OR (bool_or(kind = 'inserted_into_table') AND NOT bool_or(kind = 'inlined_delete'))) i
             ON i.snapshot_id = c.snapshot_id AND i.id = c.id
        ANTI JOIN event e ON e.snapshot_id = c.snapshot_id AND e.table_id = c.id
             AND e.event IN ('file ends', 'row ends', 'deletion begins')
        -- A delete file of several snapshots may hold it. And the engine's flush of inlined deletions says that it
        -- deletes, while its delete file begins with the snapshot that did.
        ANTI JOIN ducklake_delete_file d ON d.table_id = c.id AND d.begin_snapshot <= c.snapshot_id
        WHERE c.kind = 'deleted_from_table'""",
]

CHECKS = [
    Check(
        "ended-without-change",
        "error",
        "Rows disappeared without a recorded deletion, and change feeds do not report it.",
        "If the rows should still exist, set `end_snapshot` to NULL; otherwise add the change to `changes_made` of"
        " the snapshot.",
        sql="""
            SELECT table_id, file, what || ' ends with snapshot ' || snapshot_id
                   || ', which records for its table only: '
                   || coalesce((SELECT string_agg(kind, ', ' ORDER BY kind) FROM change_token c
                                WHERE c.snapshot_id = u.snapshot_id AND c.id = u.table_id), 'nothing')
            FROM unrecorded_event u WHERE event IN ('file ends', 'row ends')""",
    ),
    Check(
        "begun-without-change",
        "warning",
        "Concurrent commits did not detect conflicts with the snapshot, and change feeds may omit the change.",
        "Find the program that writes metadata without recording it in `changes_made`, and add the change there.",
        sql="""
            SELECT table_id, file, what || ': ' || event || ' with snapshot ' || snapshot_id
                   || ', which does not record it'
            FROM unrecorded_event WHERE event NOT IN ('file ends', 'row ends')
                  AND snapshot_id IN (SELECT snapshot_id FROM change_token)""",
    ),
    Check(
        "deletion-without-delete-file",
        "error",
        "Rows that a commit deleted are visible again.",
        "Delete the rows again (the previous snapshot still contains them), or restore the row of"
        " ducklake_delete_file from a backup of the catalog.",
        sql="""
            SELECT table_id, NULL, 'snapshot ' || snapshot_id || ' deleted rows, but has no delete file, and no data'
                   || ' file ends with it'
            FROM lost_deletion SEMI JOIN known_table USING (table_id)""",
    ),
]
