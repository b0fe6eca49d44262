"""A maintenance policy has safe defaults, and invalid values are refused."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ducklake_orch import MaintenancePolicy
from ducklake_orch.config.loading import load
from ducklake_orch.config.maintenance import MergePolicy, names, read_policy
from ducklake_orch.errors import ConfigError, MaintenanceFloorError

DAYS = timedelta(days=1)


@pytest.fixture
def toml(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        (tmp_path / "ducklake.toml").write_text(text)
        return tmp_path / "ducklake.toml"

    return write


def test_the_default_policy_is_safe() -> None:
    policy = MaintenancePolicy()
    assert (policy.flush.min_rows, policy.flush.min_age) == (1, timedelta(0))
    assert policy.rewrite.delete_threshold == 0.2
    assert (policy.merge.min_files, policy.merge.max_files_per_run, policy.merge.engine) == (5, 10_000, "auto")
    assert (policy.merge.target_file_size, policy.merge.tiers) == (None, None)
    assert (policy.expire.older_than, policy.expire.retain_last, policy.expire.keep) == (7 * DAYS, 10, ())
    assert policy.cleanup.older_than == 2 * DAYS
    assert (policy.orphans.action, policy.orphans.older_than) == ("report", 7 * DAYS)
    assert (policy.budget_s, policy.budget_bytes, policy.on_error, policy.force) == (None, None, "continue", False)


def test_durations_and_sizes_are_parsed_from_text() -> None:
    policy = MaintenancePolicy(
        expire={"older_than": "36h", "keep": "release *"},
        merge={"target_file_size": "512 MiB", "tiers": ["1 MiB", "10MB"]},
        memory_limit="2GB",
    )
    assert policy.expire.older_than == timedelta(hours=36)
    assert policy.expire.keep == ("release *",)
    assert (policy.merge.target_file_size, policy.merge.tiers) == (512 * 1024**2, (1024**2, 10_000_000))
    assert policy.memory_limit == "2000000000B"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"exire": {}}, "expire"),
        ({"expire": {"oder_than": "1d"}}, "older_than"),
        ({"expire": {"older_than": "-1d"}}, "negative"),
        ({"expire": {"older_than": "soon"}}, "not a duration"),
        ({"expire": {"retain_last": 0}}, "retain_last"),
        ({"rewrite": {"delete_threshold": 20}}, "delete_threshold"),
        ({"merge": {"min_files": 1}}, "min_files"),
        ({"merge": {"tiers": ["10MB", "1MB"]}}, "tiers"),
        ({"merge": {"engine": "dask"}}, "engine"),
        ({"orphans": {"action": "remove"}}, "action"),
        ({"health": {"delete_share": (0.5, 0.1)}}, "delete_share"),
        ({"overrides": {"t": {"expire": {}}}}, "`older_than` is missing"),
        ({"overrides": {"t": {"expire": {"retain_last": 3}}}}, "retain_last"),
        ({"on_error": "ignore"}, "on_error"),
    ],
)
def test_the_error_for_an_invalid_value_names_the_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MaintenancePolicy(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"expire": {"older_than": "59m"}},
        {"cleanup": {"older_than": 0}},
        {"orphans": {"older_than": "23h"}},
        {"orphans": {"older_than": "23h", "action": "delete"}},
    ],
)
def test_a_value_below_a_retention_floor_needs_force(fields: dict[str, Any]) -> None:
    with pytest.raises(MaintenanceFloorError, match="force=True"):
        MaintenancePolicy(**fields)
    assert MaintenancePolicy(**fields, force=True).below_floors() == [*fields]
    name, part = next(iter(fields.items()))
    forced = MaintenancePolicy(**fields, force=True).model_copy(update={"force": False})
    with pytest.raises(MaintenanceFloorError):
        read_policy(forced, MaintenancePolicy())
    off = {"action": "off"} if name == "orphans" else {"enabled": False}
    assert not MaintenancePolicy(**{name: part | off}).below_floors()  # a disabled operation needs no floor


def test_fields_of_a_call_override_the_lakes_policy_and_a_whole_policy_replaces_it() -> None:
    own = MaintenancePolicy(
        expire={"older_than": "30 days", "keep": ["release *"]},
        overrides={"sales.*": {"merge": {"min_files": 9}}},
        health={"write_age": ("1h", "1d"), "pending_bytes": ("1 GiB", "2 GiB")},
        memory_limit="2GB",
    )
    assert read_policy(None, own) is own
    over = {"expire": {"older_than": "60 days"}, "overrides": {"sales.*": {"merge": {"tiers": ["1 MiB"]}}}}
    policy = read_policy(over, own)
    assert (policy.expire.older_than, policy.expire.keep) == (timedelta(days=60), ("release *",))
    assert policy.of_table("sales", "orders").merge == MergePolicy(min_files=9, tiers=("1 MiB",))
    assert (policy.health, policy.memory_limit) == (own.health, own.memory_limit)
    assert "cleanup" not in policy.model_fields_set  # the lake's options still set what neither sets
    whole = MaintenancePolicy(expire=over["expire"])
    assert read_policy(whole, own) is whole
    with pytest.raises(MaintenanceFloorError):
        read_policy({"expire": {"older_than": "10 minutes"}}, own)


@pytest.mark.parametrize(
    ("pattern", "table", "is_named"),
    [
        ("orders", "main.orders", True),
        ("orders", "sales.orders", False),
        ("Orders", "main.ORDERS", True),
        ("sales.*", "sales.orders", True),
        ("*.raw_*", "sales.raw_x", True),
        ("raw_*", "sales.raw_x", False),
        ("*", "sales.orders", True),
        ("sales", "sales.orders", False),
    ],
)
def test_a_pattern_matches_table_names(pattern: str, table: str, is_named: bool) -> None:
    assert names(pattern, *table.split(".")) is is_named


def test_an_override_changes_only_its_own_fields() -> None:
    policy = MaintenancePolicy(
        merge={"min_files": 8, "tiers": ["1MB"]},
        overrides={
            "sales.*": {"merge": {"min_files": 3}, "flush": {"enabled": False}},
            "*.big": {"merge": {"min_files": 4}},
        },
    )
    assert policy.of_table("main", "t") is policy
    assert policy.of_table("sales", "t").merge.min_files == 3
    assert policy.of_table("sales", "t").merge.tiers == (1_000_000,)
    assert not policy.of_table("sales", "t").flush.enabled
    assert policy.of_table("sales", "big").merge.min_files == 4
    assert policy.unmatched([("main", "t"), ("main", "big")]) == ["sales.*"]


def test_a_file_sets_the_policy_for_all_lakes_and_for_single_lakes(toml: Callable[[str], Path]) -> None:
    path = toml("""
        [maintenance.expire]
        older_than = "30 days"
        keep = ["release *"]
        [maintenance.overrides."sales.*".merge]
        min_files = 3
        [lakes.a]
        [lakes.b.maintenance.expire]
        older_than = "${AGE:-3 days}"
        [profiles.prod.maintenance.merge]
        min_files = 50
        """)
    a, b = (load(path=path, lake=name, environ={}) for name in ("a", "b"))
    assert a.config.maintenance.expire.older_than == 30 * DAYS
    assert a.config.maintenance.of_table("sales", "t").merge.min_files == 3
    assert (b.config.maintenance.expire.older_than, b.config.maintenance.expire.keep) == (3 * DAYS, ("release *",))
    assert a.origins["maintenance.expire.older_than"] == "ducklake.toml [maintenance]"
    assert load(path=path, lake="a", profile="prod", environ={}).config.maintenance.merge.min_files == 50


def test_environment_variables_set_single_fields_of_the_policy() -> None:
    environ = {"DUCKLAKE_NAME": "a", "DUCKLAKE_MAINTENANCE__EXPIRE__OLDER_THAN": "3 days"}
    environ |= {"DUCKLAKE_MAINTENANCE__BUDGET_S": "60"}
    policy = load(environ=environ).config.maintenance
    assert (policy.expire.older_than, policy.budget_s) == (3 * DAYS, 60)
    with pytest.raises(ConfigError, match="OLDER_THAN"):
        load(environ={"DUCKLAKE_NAME": "a", "DUCKLAKE_MAINTENANCE__EXPIRE__ODER_THAN": "3 days"})


def test_retention_floors_apply_to_a_policy_in_a_file(toml: Callable[[str], Path]) -> None:
    path = toml("[maintenance.cleanup]\nolder_than = '5m'\n[lakes.a]")
    with pytest.raises(MaintenanceFloorError, match="cleanup"):
        load(path=path, environ={})
