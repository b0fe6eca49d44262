"""`ducklake-orch preview`, `tables`, `files`, `snapshots` and `options`: list the contents of a lake."""

from typing import Annotated

import typer

from ducklake_orch.cli.options import LakeOptions
from ducklake_orch.cli.output import print_json, show, sql_text, table
from ducklake_orch.cli.times import AsOf, SnapshotId, TagName, zoned_time
from ducklake_orch.config.units import in_bytes


def preview(options: LakeOptions) -> None:
    """Show the SQL that connecting runs, secrets masked; nothing is connected."""
    lake = options.open()
    if options.json:
        print_json({"sql": lake.preview_sql(), "required_extensions": lake.required_extensions})
    else:
        show(sql_text(lake.preview_sql()))


def tables(options: LakeOptions, snapshot: SnapshotId = None, as_of: AsOf = None, tag: TagName = None) -> None:
    """List the tables."""
    entries = options.open().tables(snapshot=snapshot, as_of=zoned_time(as_of), tag=tag, rows=True)
    if options.json:
        print_json(entries)
        return
    rows = [
        [
            f"{entry.schema}.{entry.table}",
            entry.rows,
            entry.file_count,
            in_bytes(entry.file_bytes),
            entry.last_write.isoformat(sep=" ", timespec="seconds") if entry.last_write else "",
            entry.comment or "",
        ]
        for entry in entries
    ]
    right = ["rows", "files", "size"]
    show(table(["table", *right, "last write", "comment"], rows, right=right) if rows else "There are no tables.")


def files(
    options: LakeOptions,
    name: Annotated[str, typer.Argument(metavar="TABLE", help="`table` or `schema.table`.")],
    where: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="Only files that may hold rows that meet this condition.", show_default=False),
    ] = None,
    snapshot: SnapshotId = None,
    as_of: AsOf = None,
    tag: TagName = None,
) -> None:
    """List the data files of a table."""
    entries = options.open().table(name).files(snapshot=snapshot, as_of=zoned_time(as_of), tag=tag, where=where)
    if options.json:
        print_json(entries)
        return
    rows = [
        [
            file.path,
            ", ".join(f"{key}={'NULL' if value is None else value}" for key, value in file.partition.items()),
            file.rows,
            file.deletes,
            in_bytes(file.bytes),
            file.snapshot,
        ]
        for file in entries
    ]
    right = ["rows", "deleted", "size", "snapshot"]
    show(table(["file", "partition", *right], rows, right=right) if rows else "There are no files.")


def snapshots(
    options: LakeOptions,
    limit: Annotated[int | None, typer.Option(min=1, help="How many of the newest; all by default.")] = None,
) -> None:
    """List the snapshots, newest first."""
    entries = options.open().snapshots(limit)
    if options.json:
        print_json(entries)
        return
    rows = [
        [
            snapshot.snapshot_id,
            snapshot.snapshot_time.isoformat(sep=" ", timespec="seconds"),
            ", ".join(snapshot.changes),
            snapshot.author or "",
            snapshot.message or "",
        ]
        for snapshot in entries
    ]
    show(table(["snapshot", "time", "changes", "author", "message"], rows, right=["snapshot"]))


def options(options: LakeOptions) -> None:
    """List the options stored for the lake, its schemas and its tables."""
    entries = options.open().options()
    if options.json:
        print_json(entries)
        return
    rows = [
        [option.name, option.value, f"{option.scope} {option.entry or ''}".strip(), option.description]
        for option in entries
    ]
    show(table(["option", "value", "of", "meaning"], rows))
