"""Select operations, schemas and tables of a lake, by name or pattern."""

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ducklake_orch.config.maintenance import OPERATIONS, MaintenancePolicy, TablePattern, names, refuse_unmatched
from ducklake_orch.config.nearest import nearest
from ducklake_orch.config.units import in_words
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.errors import ConfigError, ObjectNotFoundError, UnmatchedOverrideWarning

log = logging.getLogger("ducklake_orch")


@dataclass(frozen=True)
class Selection:
    """The selected part of a lake; None selects everything.

    Attributes:
        operations: Names of operations.
        schemas: Names of schemas, or patterns.
        tables: Names of tables, or patterns as in `overrides` of a policy. A pair of schema and table is an exact name.
    """

    operations: Sequence[str] | None = None
    schemas: Sequence[str] | None = None
    tables: Sequence[TablePattern] | None = None

    def __post_init__(self) -> None:
        for name in ("operations", "schemas", "tables"):
            if isinstance(given := getattr(self, name), str):
                object.__setattr__(self, name, [given])
        for operation in self.operations or ():
            if operation not in OPERATIONS:
                raise ConfigError(f"There is no operation `{operation}`.", remedy=nearest(operation, OPERATIONS))

    def wants(self, operation: str) -> bool:
        """Whether an operation is selected."""
        return self.operations is None or operation in self.operations

    def wants_table(self, name: TableName) -> bool:
        """Whether a table is selected."""
        return (
            self.schemas is None or any(fnmatchcase(name.schema.lower(), schema.lower()) for schema in self.schemas)
        ) and (self.tables is None or any(names(table, *name) for table in self.tables))

    def refuse_unknown(self, known: Sequence[TableName], lake: str) -> None:
        """Refuse a name that matches nothing, because the user expects it to be maintained.

        Raises:
            ObjectNotFoundError: When a name matches nothing; the remedy suggests the nearest name.
        """
        schemas = sorted({name.schema for name in known})
        for pattern in self.schemas or ():
            if not any(fnmatchcase(schema.lower(), pattern.lower()) for schema in schemas):
                remedy = nearest(pattern, schemas) if schemas else "The lake has no tables yet."
                raise ObjectNotFoundError(f"Lake `{lake}` has no table in a schema `{pattern}`.", remedy=remedy)
        refuse_unmatched(self.tables or (), known, lake)


def warn(policy: MaintenancePolicy, known: Sequence[TableName], lake: str) -> list[str]:
    """Warn about probable mistakes in a policy; return the warnings for the plan."""
    found = []
    for pattern in policy.unmatched([(name.schema, name.table) for name in known]):
        remedy = nearest(pattern, [str(name) for name in known]) if known else ""
        found.append(f"The override `{pattern}` matches no table of lake `{lake}`. {remedy}".rstrip())
        warnings.warn(found[-1], UnmatchedOverrideWarning, stacklevel=2)
    for operation in policy.below_floors():
        found.append(
            f"`force` allows `{operation}` below its floor: `older_than` is {in_words(policy.older_than(operation))}."
        )
        log.warning("lake `%s`: %s", lake, found[-1])
    return found
