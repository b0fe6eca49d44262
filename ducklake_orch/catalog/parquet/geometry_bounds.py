"""Statistics of geometries: a box around them, and what kinds of shapes they are."""

import json
from collections.abc import Mapping, Sequence

_AXES = ("xmin", "xmax", "ymin", "ymax", "zmin", "zmax", "mmin", "mmax")


def geometry_stats(
    boxes: Sequence[Mapping[str, float | None] | None], kinds: Sequence[Sequence[str] | None]
) -> str | None:
    """Return the JSON that the catalog holds about a geometry column; nothing when a row group does not tell.

    Args:
        boxes: The box of each row group.
        kinds: The kinds of shapes in each row group.
    """
    if not boxes or any(one is None for one in (*boxes, *kinds)):
        return None
    return json.dumps({"bbox": {axis: _outermost(axis, boxes) for axis in _AXES}, "types": sorted(_union(kinds))})


def _outermost(axis: str, boxes: Sequence[Mapping[str, float | None] | None]) -> float | None:
    known = [value for box in boxes if box and (value := box[axis]) is not None]
    if not known:
        return None  # an axis that no point has
    return min(known) if axis.endswith("min") else max(known)


def _union(kinds: Sequence[Sequence[str] | None]) -> set[str]:
    return {kind for some in kinds for kind in some or ()}
