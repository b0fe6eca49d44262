"""Drop a whole lake: its files, then the tables of its catalog.

A drop that was interrupted can be repeated, because the catalog lists the files until all of them are deleted.
"""

import re
from datetime import UTC, datetime, timedelta

from ducklake_orch.catalog.lifecycle.orphans import plan_orphans
from ducklake_orch.catalog.metadata import canonical, paths_of_tables, scheduled_paths
from ducklake_orch.catalog.search import planning
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine import instances
from ducklake_orch.engine.bulk_delete import delete_files
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.error_classes import run
from ducklake_orch.engine.exactly_once import refuse_read_only
from ducklake_orch.engine.session import open_metadata
from ducklake_orch.errors import StorageError
from ducklake_orch.results import LakeDrop

# The tables of a catalog, those of ducklake-orch included; a user's table may begin with `ducklake_` as well.
_OWN = re.compile(
    r"ducklake_(?:(?:file_|table_)?column(?:_mapping|_tag|_stats)?|(?:data|delete)_file|file_(?:partition_value|variant_stats)"
    r"|files_scheduled_for_deletion|inlined_data_tables|inlined_(?:data|delete)_\d+(?:_\d+)?|macro(?:_impl|_parameters)?"
    r"|metadata|name_mapping|partition_(?:column|info)|schema(?:_versions)?|snapshot(?:_changes)?"
    r"|sort_(?:expression|info)|table(?:_stats)?|tag|view|orch_\w+)"
)


def drop_lake(config: LakeConfig, *, dry_run: bool) -> LakeDrop:
    """Drop a lake, or only return what would be dropped.

    Raises:
        StorageError: When a file cannot be deleted; the catalog then stays as it is.
    """
    refuse_read_only(config, "dropping the lake")
    with planning(config, f"Dropping lake `{config.name}`", reads=True) as metadata:
        root = metadata.data_path()
        listed = {*paths_of_tables(metadata), *scheduled_paths(metadata).values()}
        sql = f"SELECT count(*) FROM {metadata.table_sql('ducklake_table')} WHERE end_snapshot IS NULL"
        ((tables,),) = metadata.rows(sql)
    # Clocks differ, and here no file is too young.
    strays = plan_orphans(config, datetime.now(UTC) + timedelta(days=2))
    # The root ends with a slash.
    inside = sorted(path for path in listed if path.startswith(root) or canonical(path, root).startswith(root))
    plan = LakeDrop(
        lake=config.name,
        data_path=root,
        tables=int(tables),
        files=len(inside) + strays.files,
        files_outside=len(listed) - len(inside),
        files_unknown=len(strays.unknown) + strays.running,
        dry_run=dry_run,
    )
    if dry_run:
        return plan
    if failed := delete_files(config, [*inside, *strays.paths]):
        path, reason = next(iter(failed.items()))
        raise StorageError(
            f"{len(failed)} files of lake `{config.name}` cannot be deleted, such as {path}: {reason}",
            remedy="The catalog still lists them. Mend the cause, then drop the lake again.",
        )
    _drop_catalog(config)
    return plan


def _drop_catalog(config: LakeConfig) -> None:
    dialect = dialect_of(config)
    with open_metadata(config, read_only=False, trusted=True) as opened:
        con = opened.unwrap()
        names = [name for name in dialect.names(con, "ducklake_") if _OWN.fullmatch(name)]
        for statement in dialect.drop_together(names):
            run(con, statement, config, f"Dropping lake `{config.name}` failed")
        is_empty = dialect.holds_nothing(con)
    if is_empty:
        dialect.remove_database()
    # Connections of this process are still attached to the lake.
    instances.pool.close()
