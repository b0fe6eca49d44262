"""Run one batch of hostile cases: `python -m tests.hostile.child MODULE:CASE FIRST STOP FOLDER SECONDS`."""

import faulthandler
import json
import logging
import re
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

from ducklake_orch.errors import DuckLakeOrchError


def main(name: str, first: str, stop: str, folder: str, seconds: str) -> None:
    logging.disable()  # what the package logs would hide the traceback of a crash
    module, _, function = name.partition(":")
    case = getattr(import_module(module), function)
    with (Path(folder) / "answers.jsonl").open("w", buffering=1) as answers:

        def tell(**line: Any) -> None:
            answers.write(json.dumps(line) + "\n")

        for seed in range(int(first), int(stop)):
            tell(begin=seed)
            Path("/proc/self/clear_refs").write_text("5")  # forgets the most memory that this process had
            faulthandler.dump_traceback_later(float(seconds), exit=True)
            try:
                tell(outcome=case(seed, Path(folder)))
            except DuckLakeOrchError as error:
                tell(outcome=f"refused: {type(error).__name__}")
            except BaseException as error:  # the child must report every kind
                for problem in error.exceptions if isinstance(error, BaseExceptionGroup) else [error]:
                    text = "".join(traceback.format_exception(problem))
                    tell(finding=f"{type(problem).__name__} in {_place(problem)}", text=text[-5000:])
            tell(memory_mb=_peak_mb())
        faulthandler.cancel_dump_traceback_later()


def _peak_mb() -> int:
    """Return the most memory that this process had; `ru_maxrss` is at least that of the process that started it."""
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(peak[1]) // 1024 if peak else 0


def _place(error: BaseException) -> str:
    """Return the innermost line of the package in which an exception was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    of_package = [frame for frame in frames if "/ducklake_orch/" in frame.filename] or frames
    if not of_package:
        return str(error).splitlines()[0][:60]
    return f"{of_package[-1].filename.rpartition('/ducklake_orch/')[2]}:{of_package[-1].lineno}"


if __name__ == "__main__":
    main(*sys.argv[1:])
