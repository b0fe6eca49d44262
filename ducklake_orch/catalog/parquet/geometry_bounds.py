"""Compute the statistics of geometries: their bounding box and their kinds of shapes."""

import json
from collections.abc import Mapping, Sequence

_AXES = ("xmin", "xmax", "ymin", "ymax", "zmin", "zmax", "mmin", "mmax")


def geometry_stats(
    boxes: Sequence[Mapping[str, float | None] | None], kinds: Sequence[Sequence[str] | None]
) -> str | None:
    """Return the statistics of a geometry column as the catalog's JSON; None if a row group has no statistics.

    Args:
        boxes: The bounding box of each row group.
        kinds: The kinds of shapes in each row group.
    """
    if not boxes or any(box is None for box in (*boxes, *kinds)):
        return None
    return json.dumps({"bbox": {axis: _outermost(axis, boxes) for axis in _AXES}, "types": sorted(_union(kinds))})


def _outermost(axis: str, boxes: Sequence[Mapping[str, float | None] | None]) -> float | None:
    values = [value for box in boxes if box and (value := box[axis]) is not None]
    if not values:
        return None  # no point has this axis
    return min(values) if axis.endswith("min") else max(values)


def _union(kinds: Sequence[Sequence[str] | None]) -> set[str]:
    return {kind for group in kinds for kind in group or ()}
