"""Create tables and set options through the engine's own SQL."""

from collections.abc import Mapping, Sequence
from typing import Any

from ducklake_orch.config.lake import LakeConfig, Scalar
from ducklake_orch.engine.exactly_once import Write, commit, refuse_read_only, run_in
from ducklake_orch.engine.introspection import options as stored_options
from ducklake_orch.engine.introspection import tables
from ducklake_orch.engine.layout import (
    cluster_columns,
    column_comments,
    column_types,
    comment_sql,
    create_table_sql,
    default_texts,
)
from ducklake_orch.engine.options import check_compression, check_option, drift, in_order, set_option_sql
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.engine.session import Session, open_session
from ducklake_orch.results import CommitInfo


def create_table(
    config: LakeConfig,
    name: TableName,
    schema: Any,
    *,
    defaults: Mapping[str, Any],
    partition_by: Sequence[str] | None,
    sort_by: Sequence[str] | None,
    cluster_by: Sequence[str] | None,
    comment: str | None,
    options: Mapping[str, Scalar],
    if_not_exists: bool,
    info: CommitInfo,
) -> None:
    """Create a table with its layout, and its schema if needed, in one snapshot; arguments as in `DuckLake`."""
    refuse_read_only(config, f"creating table `{name}`")
    for option, value in options.items():
        check_option(option, value, scoped=True)
    with open_session(config) as session:
        types = column_types(schema, session.instance.root)
        cluster_columns(cluster_by or (), types)  # checked before anything is created
        create = create_table_sql(
            config.alias,
            name,
            types,
            default_texts(defaults, types, session.instance.root),
            partition_by=partition_by,
            sort_by=sort_by,
            comment=comment,
            comments=column_comments(schema),
        )

        def work(session: Session) -> None:
            # Checked while the queue is held: a concurrent first writer may have created the table.
            if if_not_exists and any(name.names(table.schema, table.table) for table in tables(session)):
                return
            for statement in create:
                session.con.execute(statement)

        commit(session, Write(f"creating table `{name}`", info=info), work)
    # The engine accepts options only for a committed table. After a crash before this, calling again sets the options.
    set_options(config, f"setting options of `{name}`", options, table=name)


def describe_table(config: LakeConfig, name: TableName, comment: str | None, options: Mapping[str, Scalar]) -> None:
    """Set the comment and the options of a table that a write has created."""
    if comment is not None:
        run_statements(config, f"describing table `{name}`", comment_sql(name.sql(config.alias), comment, {}), None)
    set_options(config, f"setting options of `{name}`", options, table=name)


def run_statements(config: LakeConfig, purpose: str, statements: Sequence[str], info: CommitInfo | None) -> None:
    """Run statements that change the lake, in one snapshot."""
    refuse_read_only(config, purpose)
    with open_session(config) as session:
        run_in(session, Write(purpose, info or CommitInfo()), statements)


def set_options(
    config: LakeConfig,
    purpose: str,
    options: Mapping[str, Scalar],
    *,
    schema: str | None = None,
    table: TableName | None = None,
) -> None:
    """Set options of the lake, a schema, or a table; refuse an option that would break later writes."""
    for name, value in options.items():
        check_option(name, value, scoped=bool(schema or table))
    if not options:
        return
    refuse_read_only(config, purpose)
    scopes = [("lake", None), ("schema", table.schema if table else schema), ("table", str(table) if table else None)]
    with open_session(config) as session:
        held: dict[str, Any] = {}
        for scope in scopes:
            held |= {
                option.name: option.value for option in stored_options(session) if (option.scope, option.entry) == scope
            }
        check_compression({**held, **options})
        statements = [
            set_option_sql(config.alias, name, value, schema=schema, table=table) for name, value in in_order(options)
        ]
        # Options are not part of snapshots, so no snapshot can carry a write id; setting them twice has the same effect
        # as once.
        run_in(session, Write(purpose, marked=False, repeatable=True), statements)


def apply_options(config: LakeConfig) -> dict[str, tuple[str | None, Scalar]]:
    """Write the configured options to the lake; return the changed ones as (before, after)."""
    quiet = config.model_copy(update={"options": {}})
    with open_session(quiet) as session:
        changes = drift(config, session.instance.root)
    set_options(quiet, "applying options", {name: wanted for name, wanted, _ in changes})
    return {name: (actual, wanted) for name, wanted, actual in changes}
