"""Steps that rearrange files and expire history, and must not change rows of retained snapshots."""

from ducklake_orch.engine.quoting import literal
from ducklake_orch.errors import CatalogUnreachableError, UnsupportedStatementError
from tests.catalog.differential.model import Table
from tests.catalog.differential.steps import Refused, Step
from tests.catalog.differential.world import World
from tests.support.backends import MYSQL


def flush(world: World, table: Table) -> None:
    """Write inlined rows and deletions to files."""
    world.run(_flush(world, table))


def merge_files(world: World, table: Table) -> None:
    """Merge small files.

    On MySQL the engine sometimes fails to remove the merged files, or sends two queries at once on a connection.
    """
    _refuse_scattered(world, table)
    try:
        world.run(f"CALL ducklake_merge_adjacent_files({literal(world.alias)}, {literal(table.name)})")
    except (CatalogUnreachableError, UnsupportedStatementError):
        if world.catalog is not MYSQL:
            raise
        raise Refused from None


def rewrite(world: World, table: Table) -> None:
    """Rewrite files without their deleted rows.

    The rewrite runs right after a flush. A later flush would add delete files without an end to ended files (T1), and
    inlined tables of an older schema would make the rewrite fail (T3).
    """
    _refuse_scattered(world, table)
    if table.name in world.inlining and not _inlines(world, table):  # the flush before it would restore rows (F18)
        raise Refused
    call = f"CALL ducklake_rewrite_data_files({literal(world.alias)}, {literal(table.name)}, delete_threshold => 0.0)"
    world.run(*([_flush(world, table)] if table.name in world.inlining else []), call)
    world.model.rewritten[table.name] = world.model.snapshot


def maintain(world: World, table: Table) -> None:
    """`lake.maintain` with one of the operations that rearrange files, on all tables that allow it."""
    operations = world.rng.choice((["flush"], ["rewrite"], ["merge"], ["flush", "rewrite", "merge"]))
    world.log.append(f"maintain {table.name}: {operations}")
    policy = {"rewrite": {"delete_threshold": 0.01}, "merge": {"min_files": 2}}
    report = world.lake.maintain(policy, operations, tables=[f"main.{table.name}"])
    assert report.status == "ok", str(report)
    world.settle(world.lake.snapshots(limit=1)[0].snapshot_id, None)


def expire(world: World, table: Table) -> None:
    """Expire some snapshots, and delete the files that only they needed."""
    old = world.model.retained[:-1]
    expired = old[: len(old) // 2] if world.chance(0.7) else world.rng.sample(old, len(old) // 2)
    versions = ", ".join(map(str, expired))
    world.run(
        f"CALL ducklake_expire_snapshots({literal(world.alias)}, versions => [{versions}])",
        f"CALL ducklake_cleanup_old_files({literal(world.alias)}, cleanup_all => true)",
    )
    world.model.expire(expired)


def _refuse_scattered(world: World, table: Table) -> None:
    """Refuse a table with files of one partition in several folders (after RENAME of a key): an INTERNAL error."""
    found = {(finding.code, finding.table) for finding in world.lake.fsck().findings}
    if ("scattered-partition", f"main.{table.name}") in found:
        raise Refused


def _flush(world: World, table: Table) -> str:
    return f"CALL ducklake_flush_inlined_data({literal(world.alias)}, table_name => {literal(table.name)})"


def _inlines(world: World, table: Table) -> bool:
    """Whether the engine can flush a table: small changes are inlined, and no key has a hash that it gets wrong."""
    return table.name in world.inlining and table.name not in world.hashed


def _has_history(world: World, table: Table) -> bool:
    return len(world.model.retained) > 12


MAINTENANCE = (
    Step("lake.maintain", "mode", maintain, weight=1.5, on_mysql=True),
    Step("flush", "mode", flush, _inlines),
    Step("merge files", "mode", merge_files, on_mysql=True),
    Step("rewrite", "mode", rewrite),
    Step("expire", "mode", expire, _has_history, weight=0.5),
)
