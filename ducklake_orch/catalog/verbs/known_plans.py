"""Plans of small appends, kept for a moment between the writes of this process.

A commit refuses a plan that no longer holds: it compares the schema version and the options of the lake. The caller
then forgets the plan and plans again.
"""

import time
from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ducklake_orch.catalog.verbs.table_writer import WritePlan

# A plan is renewed after this time, because a commit to a lake with a newer schema version reads the table again.
_KEPT_S = 5.0
# By table: when the plan was made, what the append must be like, and the plan.
_plans: dict[Hashable, tuple[float, Any, "WritePlan"]] = {}


def known_plan(key: Hashable, shape: Any) -> "WritePlan | None":
    """Return the plan of an earlier append to the same table by the same configuration and arguments, if it is recent.

    Args:
        key: Names the table.
        shape: What the plan depends on besides the state of the lake; None if no plan is kept.
    """
    if shape is None:
        return None
    made, planned_for, plan = _plans.get(key, (0.0, None, None))
    is_known = plan is not None and time.monotonic() - made < _KEPT_S and planned_for == shape
    return plan if is_known else None


def keep_plan(key: Hashable, shape: Any, plan: "WritePlan") -> None:
    """Keep the plan of an append for the next ones to the table."""
    if shape is not None:
        _plans[key] = time.monotonic(), shape, replace(plan, kept=True)


def forget_plan(key: Hashable) -> None:
    """Forget the plan for a table."""
    _plans.pop(key, None)
