"""The lake's own options of maintenance: each holds unless the policy names a value."""

from collections.abc import Mapping
from datetime import timedelta

from ducklake_orch.catalog.metadata import Metadata
from ducklake_orch.config.maintenance import FLOORS, MaintenancePolicy, RewritePolicy
from ducklake_orch.config.units import in_words
from ducklake_orch.engine.quoting import literal

# The option that the engine's own function goes by.
_OPTION_OF = {"expire": "expire_older_than", "cleanup": "delete_older_than", "orphans": "delete_older_than"}


def with_lake_options(
    metadata: Metadata, policy: MaintenancePolicy, warnings: list[str]
) -> tuple[MaintenancePolicy, Mapping[str, str]]:
    """Return the policy with the lake's retentions where it names none, and where each retention comes from.

    Args:
        metadata: The metadata tables.
        policy: The policy.
        warnings: Gets what a person should look at.
    """
    changed, sources = {}, {}
    for operation, option in _OPTION_OF.items():
        part = getattr(policy, operation)
        value = metadata.options().get(option)
        if "older_than" in part.model_fields_set:
            sources[operation] = "the policy"
        elif value is None:
            sources[operation] = "the default"
        else:
            age, sources[operation] = _age(metadata, value), f"the lake's option `{option}`"
            if age < FLOORS[operation] and not policy.force:
                age = FLOORS[operation]
                warnings.append(
                    f"The lake's option `{option}` is {value!r}, below the floor of `{operation}`:"
                    f" {in_words(age)} holds. Without a floor: `force=True`."
                )
            changed[operation] = part.model_copy(update={"older_than": age})
    return policy.model_copy(update=changed), sources


def delete_threshold(policy: RewritePolicy, options: Mapping[str, str]) -> float:
    """Return the share of deleted rows from which on files of a table are rewritten.

    Args:
        policy: What holds for the table.
        options: The persisted options that hold for it.
    """
    own = options.get("rewrite_delete_threshold")
    return policy.delete_threshold if own is None or "delete_threshold" in policy.model_fields_set else float(own)


def _age(metadata: Metadata, interval: str) -> timedelta:
    """Return how long an interval of the engine's is, counted back from now: months differ."""
    value = f"CAST({literal(interval)} AS INTERVAL)"
    ((seconds,),) = metadata.rows(f"SELECT epoch(now()) - epoch(now() - {value})")
    return timedelta(seconds=float(seconds))
