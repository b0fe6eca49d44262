"""Send ducklake-orch's own code to Spark's executors, which then need only DuckDB and pyarrow: `ship_function`.

The function that a Spark task runs is pickled by value and carries the package's modules as compiled code. The worker
imports them from memory: no file is written, and a copy of ducklake-orch that is installed there is not used.
"""

import hashlib
import importlib.util
import marshal
import os
import pickle
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any
from zipimport import zipimporter

_PACKAGE = "ducklake_orch"
_SPARK_ARCHIVES = ("pyspark.zip", "py4j-", "spark-core_")
# The modules that tasks use; the rest of the package is not sent.
_SENT = ("*.py", "catalog/**/*.py", "config/**/*.py", "engine/**/*.py", "spark/**/*.py")
# Not sent: no task checks a lake.
_NOT_SENT = "catalog/fsck/*"


def ship_function(function: str, *arguments: Any) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a function for `mapInArrow` that calls a function of ducklake-orch in the executor.

    Args:
        function: Its module and name, such as `ducklake_orch.spark.write_task:write`.
        arguments: Its arguments, before the stream of Arrow batches.
    """
    from pyspark import cloudpickle

    # Otherwise the pickle would only name this module, which the executor does not have.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    digest, modules = _modules()
    given = pickle.dumps(arguments)

    def run(batches: Iterator[Any]) -> Any:
        return _run(digest, modules, function, given, batches)

    return run


@cache
def _modules() -> tuple[str, bytes]:
    """Return a digest that identifies this version of the modules, and their compressed code."""
    root = Path(__file__).parent.parent
    codes: dict[str, tuple[bool, bytes]] = {}
    for part in _SENT:
        for path in sorted(root.glob(part)):
            if path.relative_to(root).match(_NOT_SENT):
                continue
            inside = path.relative_to(root).with_suffix("").parts
            is_package = inside[-1] == "__init__"
            name = ".".join((_PACKAGE, *(inside[:-1] if is_package else inside)))
            code = SourceFileLoader(name, str(path)).get_code(name)
            codes[name] = (is_package, marshal.dumps(code))
    packed = zlib.compress(pickle.dumps(codes), 6)
    return hashlib.sha256(packed).hexdigest(), packed


# --- in the executor: nothing here may need anything but Python's own modules --------------------------------------


class ShippedModules:
    """Python's importer for the modules that a task carries."""

    def __init__(self, digest: str, codes: dict[str, tuple[bool, bytes]]) -> None:
        self.digest = digest
        self._codes = codes

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find a module for `sys.meta_path`."""
        if name not in self._codes:
            return None
        return importlib.util.spec_from_loader(name, self, is_package=self._codes[name][0])  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> None:
        """Let Python create the module."""

    def exec_module(self, module: Any) -> None:
        """Run the module's code."""
        exec(marshal.loads(self._codes[module.__name__][1]), module.__dict__)  # noqa: S102, S302 - our own, from the driver


def _run(digest: str, modules: bytes, function: str, given: bytes, batches: Iterator[Any]) -> Any:
    installed = next((importer for importer in sys.meta_path if type(importer).__name__ == "ShippedModules"), None)
    if installed is None or installed.digest != digest:  # type: ignore[attr-defined]
        # Workers are reused by later tasks, and may have loaded another version of the package.
        if installed is not None:
            sys.meta_path.remove(installed)
        for name in [module for module in sys.modules if module.partition(".")[0] == _PACKAGE]:
            del sys.modules[name]
        sys.meta_path.insert(0, ShippedModules(digest, pickle.loads(zlib.decompress(modules))))  # noqa: S301
    module, _, name = function.partition(":")
    work = getattr(importlib.import_module(module), name)
    answer = work(*pickle.loads(given), batches)  # noqa: S301
    if isinstance(answer, Iterator):
        return _yield_all(answer)
    _forget_archives()
    return answer


def _yield_all(answer: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from answer
    finally:
        _forget_archives()


def _forget_archives() -> None:
    """Remove Spark's own archives from Python's importer cache.

    Spark makes each task read the directories of all cached archives again, and Python searches them for every module.
    That costs 0.1 s per task for files that do not change.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and os.path.basename(finder.archive).startswith(_SPARK_ARCHIVES):
            sys.path_importer_cache.pop(path, None)
