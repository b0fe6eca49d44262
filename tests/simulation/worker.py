"""A worker process of a simulation: it runs operations one after the other, and reports how each one ends."""

import faulthandler
import os
import sys
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from ducklake_orch import DuckLake, LakeConfig
from tests.simulation.stops import Stops
from tests.simulation.work import Work


def start(
    config: LakeConfig, operations: Sequence[Work], scheduler: Connection, seed: str, *, wrong_clock: bool
) -> int:
    """Fork a worker, and return its process id."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        _work(config, operations, scheduler, seed, wrong_clock)
        status = 0
    except BaseException:
        scheduler.send(("raised", traceback.format_exc()))
    finally:
        sys.stdout.flush()
        os._exit(status)


def _work(config: LakeConfig, operations: Sequence[Work], scheduler: Connection, seed: str, wrong_clock: bool) -> None:
    faulthandler.enable()
    stops = Stops(scheduler, seed, Path(str(config.data_path)))
    stops.install()
    if wrong_clock:
        stops.change_clock()
    lake = DuckLake(config)
    for operation in operations:
        outcome = operation.run(lake)
        # A worker that is killed here has committed, and does not know it.
        stops.stop("done", lambda: None)
        scheduler.send(("ended", outcome))
    scheduler.send(("finished", None))
