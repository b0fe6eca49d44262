"""Lazy exports: a name that a package of `catalog/` exports is imported on first use.

Other packages import from a face only: `from ducklake_orch.catalog.scan import plan_scan`. Such an import must load no
more than the one module that defines the name: Spark tasks that read must not load pydantic, and a process that only
parses definitions must load no engine. So a face names its exports in imports under `TYPE_CHECKING`, which never run,
and `lazy_face` finds them in the compiled code of the face. Spark tasks get compiled code only, so the source cannot
serve.
"""

import dis
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy_face(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of the package that calls this.

    Args:
        package: The package, as its `__name__`.
    """
    homes: dict[str, str] = {}
    module = ""
    for step in dis.get_instructions(sys._getframe(1).f_code):
        if step.opname == "IMPORT_NAME":
            module = step.argval
        elif step.opname == "IMPORT_FROM" and module.startswith(f"{package}."):
            homes[step.argval] = module

    def resolve(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return resolve, lambda: sorted(homes), sorted(homes)
