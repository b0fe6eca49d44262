"""Maintenance of files: compaction, flushes of inlined rows, expiry, clean-up and orphaned files.

Each operation is one function that maintenance calls. None of them changes what a retained snapshot reads.
"""

from typing import TYPE_CHECKING

from ducklake_orch.catalog.faces import lazy_face

if TYPE_CHECKING:
    from ducklake_orch.catalog.lifecycle.cleanup import clean_up as clean_up
    from ducklake_orch.catalog.lifecycle.cleanup import plan_cleanup as plan_cleanup
    from ducklake_orch.catalog.lifecycle.compaction import Compactor as Compactor
    from ducklake_orch.catalog.lifecycle.compaction import compact as compact
    from ducklake_orch.catalog.lifecycle.compaction_bin import Bin as Bin
    from ducklake_orch.catalog.lifecycle.compaction_bin import BinJob as BinJob
    from ducklake_orch.catalog.lifecycle.compaction_bin import compact_bin as compact_bin
    from ducklake_orch.catalog.lifecycle.compaction_commit import Compacted as Compacted
    from ducklake_orch.catalog.lifecycle.compaction_commit import Way as Way
    from ducklake_orch.catalog.lifecycle.expiry import Retention as Retention
    from ducklake_orch.catalog.lifecycle.expiry import expirable as expirable
    from ducklake_orch.catalog.lifecycle.expiry import expire as expire
    from ducklake_orch.catalog.lifecycle.expiry import plan_expire as plan_expire
    from ducklake_orch.catalog.lifecycle.flush import flush_inlined as flush_inlined
    from ducklake_orch.catalog.lifecycle.orphans import UnknownFile as UnknownFile
    from ducklake_orch.catalog.lifecycle.orphans import delete_orphans as delete_orphans
    from ducklake_orch.catalog.lifecycle.orphans import plan_orphans as plan_orphans
else:
    __getattr__, __dir__, __all__ = lazy_face(
        __name__,
        {
            "cleanup": ["clean_up", "plan_cleanup"],
            "compaction": ["Compactor", "compact"],
            "compaction_bin": ["Bin", "BinJob", "compact_bin"],
            "compaction_commit": ["Compacted", "Way"],
            "expiry": ["Retention", "expirable", "expire", "plan_expire"],
            "flush": ["flush_inlined"],
            "orphans": ["UnknownFile", "delete_orphans", "plan_orphans"],
        },
    )
