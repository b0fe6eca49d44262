"""How much room files take in the storage, where the catalog does not say it any more."""

import os
from collections.abc import Sequence

import duckdb

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.quoting import exactly, literal

# On an object store each file costs a request.
_ASKED = 100


def bytes_of(config: LakeConfig, paths: Sequence[str]) -> int | None:
    """Return the size of files: exactly on a disk, else worked out from some of them; None where nobody can tell."""
    local = [path for path in paths if "://" not in path]
    remote = [path for path in paths if "://" in path]
    size = sum(os.stat(path).st_size for path in local if os.path.exists(path))
    if not remote:
        return size
    some = remote[:: -(-len(remote) // _ASKED)]
    names = ", ".join(literal(exactly(path)) for path in some)
    try:
        with working_connection(config) as con:
            row = con.execute(f"SELECT avg(size) FROM read_blob([{names}])").fetchone()
    except duckdb.Error:  # one of them is gone: clean-up does not mind, and neither does this
        return None
    return size + round(float(row[0]) * len(remote)) if row and row[0] is not None else None
