"""The size of files in the storage, for files whose size the catalog no longer records: `bytes_of`."""

import os
from collections.abc import Sequence

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.quoting import file_literals
from ducklake_orch.errors import DuckLakeOrchError

# At most this many files are sampled: on an object store each one costs a request.
_SAMPLED = 100


def bytes_of(config: LakeConfig, paths: Sequence[str]) -> int | None:
    """Return the total size of files: exact on a disk, estimated from a sample elsewhere; None if it cannot be read."""
    local = [path for path in paths if "://" not in path]
    remote = [path for path in paths if "://" in path]
    size = sum(os.stat(path).st_size for path in local if os.path.exists(path))
    if not remote:
        return size
    sample = remote[:: -(-len(remote) // _SAMPLED)]
    names = file_literals(sample)
    try:
        with working_connection(config) as con:
            row = con.execute(f"SELECT avg(size) FROM read_blob([{names}])").fetchone()
    except DuckLakeOrchError:  # a concurrent clean-up deleted one of them, which is no failure
        return None
    return size + round(float(row[0]) * len(remote)) if row and row[0] is not None else None
