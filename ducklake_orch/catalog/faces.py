"""Lazy faces: what a package of `catalog/` exports is loaded when it is first asked for.

Other packages import from a face only: `from ducklake_orch.catalog.scan import plan_scan`. Such an import must not load
more than the one module that is wanted: Spark tasks that read must not load pydantic, and a process that only parses
definitions must load no engine. So a face does not import its modules. It names its exports twice: for type checkers as
imports under `TYPE_CHECKING`, and for Python as a table of modules with the names that they export.
`tests/unit/test_import_rules.py` keeps both the same.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_face(
    package: str, exports: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package.

    Args:
        package: The package, as its `__name__`.
        exports: The exported names, by the module that defines them.
    """
    homes = {name: f"{package}.{module}" for module, names in exports.items() for name in names}

    def resolve(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return resolve, lambda: sorted(homes), sorted(homes)
