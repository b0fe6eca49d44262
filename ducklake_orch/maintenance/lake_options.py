"""Apply the lake's persisted maintenance options, each of which holds unless the policy sets a value."""

from collections.abc import Mapping
from datetime import timedelta

from ducklake_orch.catalog.metadata import Metadata
from ducklake_orch.config.maintenance import FLOORS, MaintenancePolicy, RewritePolicy
from ducklake_orch.config.units import in_words
from ducklake_orch.engine.quoting import literal

# The option that the engine's own function uses.
_OPTION_OF = {"expire": "expire_older_than", "cleanup": "delete_older_than", "orphans": "delete_older_than"}


def with_lake_options(
    metadata: Metadata, policy: MaintenancePolicy, warnings: list[str]
) -> tuple[MaintenancePolicy, Mapping[str, str]]:
    """Return the policy completed with the lake's retentions, and the source of each retention.

    Args:
        metadata: The metadata tables.
        policy: The policy.
        warnings: Receives warnings for the user.
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
                    f" {in_words(age)} is used instead. Set `force=True` to go below the floor."
                )
            changed[operation] = part.model_copy(update={"older_than": age})
    return policy.model_copy(update=changed), sources


def delete_threshold(policy: RewritePolicy, options: Mapping[str, str]) -> float:
    """Return the share of deleted rows at which files of a table are rewritten.

    Args:
        policy: The policy for the table.
        options: The persisted options in force for the table.
    """
    own = options.get("rewrite_delete_threshold")
    return policy.delete_threshold if own is None or "delete_threshold" in policy.model_fields_set else float(own)


def _age(metadata: Metadata, interval: str) -> timedelta:
    """Return the length of an engine interval, counted back from now, because months differ in length."""
    value = f"CAST({literal(interval)} AS INTERVAL)"
    ((seconds,),) = metadata.rows(f"SELECT epoch(now()) - epoch(now() - {value})")
    return timedelta(seconds=float(seconds))
