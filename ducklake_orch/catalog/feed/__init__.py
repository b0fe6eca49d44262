"""The change feed: which rows were inserted, updated and deleted between two snapshots.

A plan lists the files and inlined rows that hold the changes. It is read in this process as Arrow, or by Spark tasks.
"""

from typing import TYPE_CHECKING

from ducklake_orch.catalog.faces import lazy_face

if TYPE_CHECKING:
    from ducklake_orch.catalog.feed.feed_plan import OWN_COLUMNS, FeedPlan, plan_feed, plan_range, refuse_own_names
    from ducklake_orch.catalog.feed.feed_reader import commits_table, read_changes
    from ducklake_orch.catalog.feed.followed_table import FollowedTable
    from ducklake_orch.catalog.feed.snapshot_range import Commit, FeedRequest, find_range
    from ducklake_orch.catalog.feed.stream_position import (
        LIMITS,
        Position,
        StreamRequest,
        batch_start,
        read_start,
        rows_changed,
    )
else:
    __getattr__, __dir__, __all__ = lazy_face(__name__)
