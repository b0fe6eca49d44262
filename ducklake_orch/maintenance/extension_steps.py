"""Rewrite and merge with the extension's own functions, which need the queue throughout their transaction."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ducklake_orch.catalog.metadata import Metadata, deletions_table, live, reading
from ducklake_orch.engine.exactly_once import Write, commit
from ducklake_orch.engine.quoting import literal
from ducklake_orch.engine.session import Session, open_session
from ducklake_orch.errors import DuckLakeOrchError, StalePlanError, TableDroppedError
from ducklake_orch.maintenance.step_context import Done, Work

# Size and number of rows of files, by id.
Files = dict[int, tuple[int, int]]


def rewrite(work: Work) -> Done:
    """Rewrite the files of a table that have lost many of their rows."""
    with _session(work) as session, session.queue(work.purpose):
        _refuse_inlined_deletions(work, session)
        threshold = work.policy.rewrite.delete_threshold
        return _call(work, session, [_table_call(work, "rewrite_data_files", delete_threshold=threshold)])


def _refuse_inlined_deletions(work: Work, session: Session) -> None:
    """Refuse if deletions are inlined: a later flush by the extension would leave a file with two live delete files."""
    with reading(session, work.purpose) as metadata:
        at = metadata.latest().snapshot_id
        table = metadata.find_table(work.table, at)
        name = None if table is None else deletions_table(metadata, table)
        if name is None:
            return
        live_files = f"SELECT data_file_id FROM {metadata.table_sql('ducklake_data_file')} WHERE end_snapshot IS NULL"
        inlined = f"SELECT count(*) FROM {metadata.table_sql(name)} WHERE file_id IN ({live_files})"
        if metadata.rows(inlined)[0][0]:
            raise StalePlanError(f"{work.purpose}: a concurrent write inlined deletions after the plan was made.")


def merge(work: Work) -> Done:
    """Merge small files of a table."""
    part = work.policy.merge
    limits = list(zip((None, *(part.tiers or ())), part.tiers or (None,), strict=False))
    calls = [_table_call(work, "merge_adjacent_files", min_file_size=low, max_file_size=high) for low, high in limits]
    with _session(work) as session, _target_file_size(session, part.target_file_size):
        return _call(work, session, calls)


@contextmanager
def _session(work: Work) -> Iterator[Session]:
    with open_session(work.config) as session:
        try:
            yield session
        except DuckLakeOrchError:
            # An INTERNAL error makes the whole engine instance unusable, so the next user gets a new one.
            session.broken = session.dirty = True
            raise


@contextmanager
def _target_file_size(session: Session, size: int | None) -> Iterator[None]:
    """Let merges use another target size than the lake's option, which is not changed."""
    if size is None:
        yield
        return
    session.dirty = True
    session.instance.root.execute(f"SET ducklake_target_file_size = {literal(f'{size}B')}")
    try:
        yield
    finally:
        session.instance.root.execute("RESET ducklake_target_file_size")


def _table_call(work: Work, function: str, **named: Any) -> str:
    return _call_sql(work, function, work.table.table, schema=work.table.schema, **named)


def _call_sql(work: Work, function: str, *given: Any, **named: Any) -> str:
    arguments = [literal(value) for value in (work.config.alias, *given)]
    arguments += [f"{name} => {literal(value)}" for name, value in named.items() if value is not None]
    return f"CALL ducklake_{function}({', '.join(arguments)})"


def _call(work: Work, session: Session, calls: Sequence[str]) -> Done:
    """Run calls, each in its own transaction, and return the changes to the table's files."""
    snapshot = None
    with session.queue(work.purpose):
        before = _files(work, session)
        for sql in calls:
            write = Write(work.purpose, work.info())
            commit(session, write, lambda leased, sql=sql, write=write: _run(work, leased, sql, write))  # type: ignore[misc]
            snapshot = write.after if write.after != write.before else snapshot
        after = _files(work, session)
    removed = [figures for file, figures in before.items() if file not in after]
    added = [figures for file, figures in after.items() if file not in before]
    step = replace(
        work.step,
        files_in=len(removed),
        files_out=len(added),
        bytes=sum(size for size, _ in removed),
        rows=sum(rows for _, rows in added),
    )
    return Done(step, snapshot)


def _run(work: Work, session: Session, sql: str, write: Write) -> None:
    """Run a call and record its figures in its snapshot."""
    cursor = session.con.execute(sql)
    names = [str(column[0]) for column in cursor.description or []]
    rows = cursor.fetchall()
    figures = {name: sum(int(row[index]) for row in rows) for index, name in enumerate(names) if index > 1}
    write.info = work.info(**figures)
    session.con.execute(write.set_message(session.config.alias))


def _files(work: Work, session: Session) -> Files:
    """Return the table's live files."""
    with reading(session, work.purpose) as metadata:
        return _files_in(work, metadata)


def _files_in(work: Work, metadata: Metadata) -> Files:
    at = metadata.latest().snapshot_id
    table = metadata.find_table(work.table, at)
    if table is None:
        raise TableDroppedError(f"{work.purpose}: the table no longer exists.")
    rows = metadata.rows(
        "SELECT data_file_id, file_size_bytes, record_count"
        f" FROM {metadata.table_sql('ducklake_data_file')} WHERE table_id = {table.table_id} AND {live(at)}"
    )
    return {int(row[0]): (int(row[1]), int(row[2])) for row in rows}
