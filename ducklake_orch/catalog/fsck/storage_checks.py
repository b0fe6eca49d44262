"""Checks of what stands in the storage beside what the catalog knows of."""

from ducklake_orch.catalog.fsck.check import Check

CHECKS = [
    Check(
        "stray-file",
        "info",
        "None. It takes up room: a write that failed left it, or one that is still running has not committed it yet.",
        "Clean-up of orphans deletes it once it is old enough.",
        sql=r"""
            SELECT t.table_id, s.path, CASE
                WHEN w.write_id = '' AND regexp_matches(parse_filename(s.path), '^ducklake-[0-9a-f]{8}-')
                    THEN 'written by the engine'
                WHEN w.write_id = '' THEN 'written by another program'
                WHEN c.snapshot_id IS NULL THEN 'of write ' || w.write_id || ', of which there is no snapshot'
                ELSE 'of write ' || w.write_id || ', which became snapshot ' || c.snapshot_id || ' without it' END
            FROM (SELECT path, canonical(path) AS one_path FROM listed
                  WHERE regexp_matches(path, '\.(parquet|puffin)$|ducklake-[0-9a-f]{32}\.driver$')) s
            ANTI JOIN expected_path USING (one_path)
            ANTI JOIN alias a ON a.listed_path = s.path
            LEFT JOIN known_table t ON starts_with(s.path, t.folder) AND t.ended_at IS NULL,
            LATERAL (SELECT regexp_extract(s.path, '(?:^|/)ducklake-([0-9a-f]{32})[-.]', 1) AS write_id) w
            LEFT JOIN (SELECT regexp_extract(commit_extra_info, '"write_id": *"([0-9a-f]{32})"', 1) AS write_id,
                              max(snapshot_id) AS snapshot_id
                       FROM ducklake_snapshot_changes GROUP BY 1) c ON c.write_id = w.write_id AND w.write_id <> ''""",
    ),
]
