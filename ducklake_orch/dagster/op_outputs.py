"""Names the tables of op outputs, one for each output of each run, and drops old ones.

Users know the table of an asset by its name. The output of an op only passes data to the next op: as with Dagster's own
IO managers, each step of each run stores its own, and a re-execution reads that of the run that produced it.
"""

import hashlib
import json
import re
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import dagster as dg

from ducklake_orch.catalog.commit import last_commits
from ducklake_orch.config.units import in_words
from ducklake_orch.dagster.output_run import known
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.errors import ConfigError, MaintenanceFloorError
from ducklake_orch.results import CommitInfo

if TYPE_CHECKING:
    from ducklake_orch.lake import DuckLake

SCHEMA = "dagster_outputs"
KEPT = timedelta(days=30)
_FLOOR = timedelta(days=1)
_NAME = re.compile(r"(?P<name>[a-z0-9_]+_[0-9a-f]{24})_(?P<check>[0-9a-f]{8})")


def output_name(context: dg.OutputContext) -> str:
    """Return the name of the table of one output of one step of one run.

    The first part is readable. The second part distinguishes runs, steps, outputs and mapping keys. The third part is a
    checksum of the others, which proves that this function created the name.
    """
    run, step = known(context, "run_id"), known(context, "step_key")
    if run is None and known(context, "step_context") is not None:
        raise ConfigError(
            f"Output `{context.name}` of step `{step}`: the run that produced it is not known.",
            remedy="Run its step again.",
        )
    readable = re.sub("[^a-z0-9]+", "_", f"{step}_{context.name}".lower())[:60].strip("_")
    identity = json.dumps([run, step, context.name, context.mapping_key])
    given = f"{readable}_{hashlib.sha256(identity.encode()).hexdigest()[:24]}"
    return f"{given}_{_checksum(given)}"


def drop_op_outputs(lake: "DuckLake", older_than: timedelta = KEPT) -> list[str]:
    """Drop the tables of op outputs that were written before some age, and return their names.

    A table is dropped if its name has the checksum of op outputs and the catalog records that a step of a Dagster run
    wrote it. Its files are deleted once its snapshots have expired.

    Args:
        lake: The lake.
        older_than: The age. A re-execution cannot read older outputs.

    Raises:
        MaintenanceFloorError: If the age is so low that a run could still be reading such outputs.
    """
    refuse_below_floor(older_than)
    named = [table for table in lake.tables() if _is_output_name(table.table)]
    if not named:
        return []
    written = last_commits(lake.reading(entering=False), [table.table_id for table in named], "dagster:")
    before = time.time() - older_than.total_seconds()
    old = [table for table in named if table.table_id in written and written[table.table_id].committed_at < before]
    names = [str(TableName(table.schema, table.table)) for table in old]
    commit = CommitInfo(
        author="dagster",
        message=f"op outputs older than {in_words(older_than)}",
        extra={"maintenance": {"operation": "op_outputs"}},
    )
    for name in names:
        lake.drop_table(name, if_exists=True, commit=commit)
    return names


def refuse_below_floor(older_than: timedelta) -> None:
    """Refuse an age below which a run could still be reading an output."""
    if older_than < _FLOOR:
        raise MaintenanceFloorError(
            f"A run that has not ended may still read op outputs of the last {in_words(older_than)}.",
            remedy=f"Keep them for at least {in_words(_FLOOR)}.",
        )


def _is_output_name(table: str) -> bool:
    match = _NAME.fullmatch(table)
    return match is not None and _checksum(match["name"]) == match["check"]


def _checksum(name: str) -> str:
    return hashlib.sha256(f"ducklake-orch op output {name}".encode()).hexdigest()[:8]
