"""Maintenance of files: compaction, flushes of inlined rows, expiry, clean-up and orphaned files.

Each operation is one function that maintenance calls. None of them changes what a retained snapshot reads.
"""

from typing import TYPE_CHECKING

from ducklake_orch.catalog.faces import lazy_face

if TYPE_CHECKING:
    from ducklake_orch.catalog.lifecycle.cleanup import clean_up, plan_cleanup
    from ducklake_orch.catalog.lifecycle.cluster_option import cluster_keys, set_cluster_keys
    from ducklake_orch.catalog.lifecycle.compaction import Compactor, compact
    from ducklake_orch.catalog.lifecycle.compaction_bin import Bin, BinJob, compact_bin
    from ducklake_orch.catalog.lifecycle.compaction_commit import Compacted, Way
    from ducklake_orch.catalog.lifecycle.expiry import Expiry, Retention, expirable, expire, plan_expire
    from ducklake_orch.catalog.lifecycle.flush import flush_inlined
    from ducklake_orch.catalog.lifecycle.lake_drop import drop_lake
    from ducklake_orch.catalog.lifecycle.orphans import UnknownFile, delete_orphans, plan_orphans
    from ducklake_orch.catalog.lifecycle.quarantine import (
        QuarantinedFile,
        delete_quarantined,
        quarantined,
        release_quarantined,
    )
    from ducklake_orch.catalog.lifecycle.tags import put_tag, read_tags, remove_tag, tagged_snapshot
else:
    __getattr__, __dir__, __all__ = lazy_face(__name__)
