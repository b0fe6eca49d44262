"""Checks of files in the storage that the catalog does not know."""

from ducklake_orch.catalog.fsck.check import Check
from ducklake_orch.catalog.metadata import FILE_NAME
from ducklake_orch.engine.quoting import literal

CHECKS = [
    Check(
        "stray-file",
        "info",
        "None for this lake, whose catalog does not list the file: a failed write left it, a brief write has not"
        " committed it yet, or it belongs to another lake or program.",
        "Orphan clean-up deletes files that writers of this lake wrote, once they are old enough. Find the owner of"
        " the other files: they may be live files of another lake.",
        sql=r"""
            SELECT t.table_id, s.path, CASE
                WHEN w.write_id = '' AND regexp_matches(parse_filename(s.path), '^ducklake-[0-9a-f]{8}-')
                    THEN 'written by the engine'
                WHEN w.write_id = '' THEN 'written by another program'
                WHEN w.mark NOT IN ('', lake_mark())
                    THEN 'of write ' || w.write_id || ' of the lake with the mark ' || w.mark
                WHEN c.snapshot_id IS NULL THEN 'of write ' || w.write_id || ', which has no snapshot'
                ELSE 'of write ' || w.write_id || ', which committed snapshot ' || c.snapshot_id
                    || ' without this file' END
            FROM (SELECT path, canonical(path) AS canonical_path FROM listed
                  WHERE regexp_matches(path, '\.(parquet|puffin)$|ducklake-[0-9a-f]{32}(-[0-9a-f]{12})?\.driver$')) s
            ANTI JOIN expected_path USING (canonical_path)
            ANTI JOIN alias a ON a.listed_path = s.path
            LEFT JOIN known_table t ON starts_with(s.path, t.folder) AND t.ended_at IS NULL,
            LATERAL (SELECT regexp_extract(s.path, $name, 1) AS write_id, regexp_extract(s.path, $name, 2) AS mark) w
            LEFT JOIN (SELECT regexp_extract(commit_extra_info, '"write_id": *"([0-9a-f]{32})"', 1) AS write_id,
                              max(snapshot_id) AS snapshot_id
                       FROM ducklake_snapshot_changes GROUP BY 1) c
                      ON c.write_id = w.write_id AND w.write_id <> ''
            WHERE w.write_id NOT IN (SELECT write_id FROM running_write)""".replace("$name", literal(FILE_NAME)),
    ),
]
