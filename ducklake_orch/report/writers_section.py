"""Who writes to the lake: authors, running writes, busiest minute, and snapshots with the runs that made them."""

import json
from typing import Any

from ducklake_orch.report.collect import LakeReport
from ducklake_orch.report.formatting import age, counted, number, table, time
from ducklake_orch.report.history import KINDS, PERIODS
from ducklake_orch.report.markup import Markup, stacked_bars, tag
from ducklake_orch.report.run_links import run_link
from ducklake_orch.results import Snapshot

# More rows are folded.
_SHOWN = 12


def writers_section(report: LakeReport) -> Markup:
    """Return the authors of the retained snapshots, and where writers meet."""
    found = report.writers
    rows = [
        [
            writer.author or "no author",
            number(writer.commits),
            time(writer.last),
            number(writer.processes) if writer.processes else "",
            number(writer.retried) if writer.retried else "",
            number(writer.outside) if writer.outside else "",
        ]
        for writer in found.by_author
    ]
    columns = ["author", "commits", "latest", "processes", "by retried tasks", "by other engines"]
    filled = [index for index in range(len(columns)) if any(row[index] for row in rows)]
    columns, rows = [columns[index] for index in filled], [[row[index] for index in filled] for row in rows]
    listed = table(columns, rows[:_SHOWN])
    if more := rows[_SHOWN:]:
        listed = Markup(listed + tag("details", tag("summary", f"{number(len(more))} more"), table(columns, more)))
    return Markup(_meeting(report) + listed)


def _meeting(report: LakeReport) -> Markup:
    """Return where writers meet: in the busiest minute, and now."""
    found, lines = report.writers, []
    if found.busiest_commits > 1:
        by = f" by {counted(found.busiest_processes, 'process')}"
        commits = counted(found.busiest_commits, "commit")
        lines.append(f"The busiest minute was {time(found.busiest)}: {commits}{by * bool(found.busiest_processes)}.")
    for write in found.running:
        lines.append(f"Running: {write.owner}. {counted(write.passed, 'commit')} since it was planned.")
    return Markup("".join(tag("p", line) for line in lines))


def snapshots_section(report: LakeReport) -> Markup:
    """Return the snapshots over time and the latest ones, with links to the runs that made them."""
    past = report.history
    width = (past.until - past.since) / PERIODS
    labels = [time(past.since + period * width) for period in range(PERIODS)]
    bars = [[(kind, period.get(kind, 0)) for kind in KINDS] for period in past.periods]
    about = f"Snapshots from {time(past.since)} to {time(past.until)}"
    kinds = [kind for kind in KINDS if any(period.get(kind) for period in past.periods)]
    rows = [_row(report, snapshot) for snapshot in past.recent]
    count = report.health.lake.metrics["snapshot_count"]
    shown = f"The latest {number(len(rows))} snapshots" if len(rows) < count else "All snapshots"
    return Markup(
        tag("p", f"{about}. Each bar covers {age(width.total_seconds())}.")
        + stacked_bars(bars, labels, about)
        + tag("ul", *(tag("li", kind, class_=kind) for kind in kinds), class_="legend")
        + tag(
            "details",
            tag("summary", shown),
            table(["snapshot", "time", "author", "message", "changes", "run", "extra"], rows),
            open="" if len(rows) <= _SHOWN else None,
        )
    )


def _row(report: LakeReport, snapshot: Snapshot) -> list[Any]:
    extra = snapshot.extra
    more = "" if extra is None else extra if isinstance(extra, str) else json.dumps(extra, ensure_ascii=False)
    return [
        snapshot.snapshot_id,
        time(snapshot.snapshot_time),
        snapshot.author or "",
        snapshot.message or "",
        ", ".join(_change(report, change) for change in snapshot.changes),
        _run(report, snapshot),
        tag("details", tag("summary", "show"), tag("code", more)) if more else "",
    ]


def _run(report: LakeReport, snapshot: Snapshot) -> str:
    name, url = run_link(snapshot.extra, report.host_urls) or ("", None)
    return name if url is None else tag("a", name, href=url, rel="noreferrer")


def _change(report: LakeReport, change: str) -> str:
    """Return a change with the name of its table."""
    kind, _, target = change.partition(":")
    known = report.history.names.get(int(target)) if target.isdecimal() and "schema" not in kind else None
    return f"{kind.replace('_', ' ')} {known or target}"
