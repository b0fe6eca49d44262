"""Render the report page: one HTML document that contains its style, script and data."""

import json
from collections.abc import Sequence
from datetime import datetime
from importlib.resources import files
from typing import Any

from ducklake_orch.config.units import in_bytes
from ducklake_orch.maintenance.health_report import GRADES, HealthFinding, TableHealth
from ducklake_orch.maintenance.run_log import LastRun
from ducklake_orch.report.collect import LakeReport
from ducklake_orch.report.history import KINDS, PERIODS
from ducklake_orch.report.markup import Markup, sparkline, stacked_bars, tag, text
from ducklake_orch.results import Snapshot

# Further findings are folded.
_SHOWN_FINDINGS = 25
_SHOWN_AUTHORS = 12
_TABLE_COLUMNS = ("table", "health", "size", "growth", "files", "rows", "small files", "deleted", "inlined", "changed")
_NUMBERS = ("size", "files", "rows", "small files", "deleted", "inlined")


def page(report: LakeReport) -> str:
    """Return the HTML document."""
    about = {"head": _head(report), "tiles": _tiles(report), "health": _health(report), "tables": _tables(report)}
    about |= {"snapshots": _snapshots(report), "maintenance": _maintenance(report)}
    style, script = (files(__package__).joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    body = tag(
        "main",
        about["tiles"],
        *(
            tag("section", tag("h2", title), about[name], id=name)
            for name, title in (
                ("health", "Health"),
                ("tables", "Tables"),
                ("snapshots", "Snapshots"),
                ("maintenance", "Maintenance"),
            )
        ),
    )
    # The page makes no network request, whatever text it contains.
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" '
        f'content="light dark"><link rel="icon" href="data:,">{tag("title", f"{report.name}: DuckLake report")}'
        f"<style>{style}</style></head>\n<body>{about['head']}{body}"
        f'<script type="application/json" id="facts">{_facts(report)}</script>'
        f"<script>{script}</script></body></html>\n"
    )


# --- the lake --------------------------------------------------------------------------------------------------------


def _head(report: LakeReport) -> Markup:
    links = (tag("a", name.capitalize(), href=f"#{name}") for name in ("health", "tables", "snapshots", "maintenance"))
    where = f"{report.catalog} · {report.storage} · {_time(report.at)}, snapshot {report.snapshot}"
    title = tag("h1", report.name, " ", _badge(report.health.grade))
    return tag("header", title, tag("p", where, class_="where"), tag("nav", *links, aria_label="On this page"))


def _tiles(report: LakeReport) -> Markup:
    metrics = report.health.lake.metrics
    orphans = metrics["orphan_files"]
    figures = [
        ("Tables", _number(metrics["tables"]), ""),
        ("Rows", _number(metrics["rows"]), f"{_number(metrics['deleted_rows'])} deleted in files"),
        ("Files", _number(metrics["files"]), in_bytes(metrics["bytes"])),
        ("Snapshots", _number(metrics["snapshot_count"]), f"the oldest {_age(metrics['snapshot_age'])} old"),
        ("Last write", f"{_age(metrics['latest_snapshot_age'])} ago", ""),
        ("Inlined rows", _number(metrics["inlined_rows"]), "waiting for a flush" if metrics["inlined_rows"] else ""),
        ("Waiting for clean-up", _number(metrics["pending_files"]), in_bytes(metrics["pending_bytes"])),
        ("Orphans", "unknown" if orphans is None else _number(orphans), "as of the last search"),
        (
            "Catalog",
            "-" if metrics["catalog_bytes"] is None else in_bytes(metrics["catalog_bytes"]),
            f"format {metrics['format_version']}",
        ),
    ]
    tiles = (tag("div", tag("dt", name), tag("dd", value, tag("small", more))) for name, value, more in figures)
    return tag("dl", *tiles, class_="tiles")


def _health(report: LakeReport) -> Markup:
    found = [("lake", finding) for finding in report.health.lake.findings]
    found += [(table.table, finding) for table in report.health.tables for finding in table.findings]
    if not found:
        return tag("p", "No figure has reached its threshold.")
    found.sort(key=lambda entry: (-GRADES.index(entry[1].grade), entry[0]))
    first, more = found[:_SHOWN_FINDINGS], found[_SHOWN_FINDINGS:]
    shown = [_findings(first)]
    if more:
        shown.append(tag("details", tag("summary", f"{_number(len(more))} more"), _findings(more)))
    return Markup("".join(shown))


def _findings(found: Sequence[tuple[str, HealthFinding]]) -> Markup:
    rows = [
        [_badge(finding.grade), where, f"{_metric(finding.metric)} {_value(finding)}", _command(finding.remedy)]
        for where, finding in found
    ]
    return _table(["grade", "where", "finding", "remedy"], rows)


def _metric(name: str) -> str:
    return name.replace("_", " ")


def _value(finding: HealthFinding) -> str:
    def shown(value: float) -> str:
        if finding.metric.endswith("age"):
            return _age(value)
        if finding.metric.endswith("bytes"):
            return in_bytes(int(value))
        return f"{value:.0%}" if finding.metric.endswith(("share", "ratio")) else _number(int(value))

    return f"{shown(finding.value)}, threshold {shown(finding.threshold)}"


def _command(remedy: str) -> Markup:
    """Render text between backticks as code."""
    parts = remedy.split("`")
    return Markup("".join(tag("code", part) if index % 2 else text(part) for index, part in enumerate(parts)))


# --- tables ----------------------------------------------------------------------------------------------------------


def _tables(report: LakeReport) -> Markup:
    if not report.health.tables:
        return tag("p", "The lake has no tables yet.")
    heads = (
        tag("th", tag("button", name, type="button"), scope="col", class_="number" if name in _NUMBERS else None)
        for name in _TABLE_COLUMNS
    )
    rows = (_table_row(report, index, table) for index, table in enumerate(report.health.tables))
    search = tag("label", "Find ", Markup('<input type="search" id="find" autocomplete="off">'), class_="find")
    table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), id="list")
    return Markup(search + tag("div", table, class_="wide"))


def _table_row(report: LakeReport, index: int, table: TableHealth) -> Markup:
    metrics, table_id = table.metrics, report.ids[table.table]
    growth = report.history.growth.get(table_id, [0] * PERIODS)
    changed = report.history.changed.get(table_id)
    cells: list[tuple[Any, Any]] = [
        (tag("button", table.table, type="button", aria_expanded="false", data_table=index), table.table),
        (_badge(table.grade), GRADES.index(table.grade)),
        (in_bytes(metrics["bytes"]), metrics["bytes"]),
        (sparkline(growth, f"from {in_bytes(growth[0])} to {in_bytes(growth[-1])}"), growth[-1] - growth[0]),
        (_number(metrics["files"]), metrics["files"]),
        (_number(metrics["rows"]), metrics["rows"]),
        (_number(metrics["small_files"]), metrics["small_files"]),
        (f"{metrics['delete_share']:.0%}", metrics["delete_share"]),
        (_number(metrics["inlined_rows"]), metrics["inlined_rows"]),
        (_time(changed) if changed else "-", int(changed.timestamp()) if changed else 0),
    ]
    shown = (
        tag("td", inside, data_sort=sort, class_="number" if name in _NUMBERS else None)
        for name, (inside, sort) in zip(_TABLE_COLUMNS, cells, strict=True)
    )
    return tag("tr", *shown)


def _facts(report: LakeReport) -> str:
    """Return the data that the script draws when a table is opened, as JSON that cannot end its script element."""
    tables = [
        {
            "sizes": [[_band(name), count] for name, count in table.metrics["file_sizes"].items()],
            "partitions": table.metrics["partitions"],
            "cells": [
                [cell.label, cell.partitions, cell.files, cell.bytes, cell.rows]
                for cell in report.partitions.get(table.table, ())
            ],
            "findings": [
                f"{_metric(finding.metric)} {_value(finding)}: {finding.remedy}" for finding in table.findings
            ],
        }
        for table in report.health.tables
    ]
    return json.dumps(tables, separators=(",", ":")).replace("<", "\\u003c")


def _band(name: str) -> str:
    return _metric(name).replace("mib", "MiB")


# --- history ---------------------------------------------------------------------------------------------------------


def _snapshots(report: LakeReport) -> Markup:
    past = report.history
    width = (past.until - past.since) / PERIODS
    labels = [_time(past.since + period * width) for period in range(PERIODS)]
    bars = [[(kind, period.get(kind, 0)) for kind in KINDS] for period in past.periods]
    about = f"Snapshots from {_time(past.since)} to {_time(past.until)}"
    legend = (tag("li", kind, class_=kind) for kind in KINDS)
    authors = ", ".join(
        f"{author or 'no author'} ({_number(count)})" for author, count in list(past.authors.items())[:_SHOWN_AUTHORS]
    )
    rows = [_snapshot_row(report, snapshot) for snapshot in past.recent]
    shown = f"The latest {_number(len(rows))} snapshots" if len(rows) < sum(past.authors.values()) else "All snapshots"
    return Markup(
        tag("p", f"{about}. Each bar covers {_age(width.total_seconds())}.")
        + stacked_bars(bars, labels, about)
        + tag("ul", *legend, class_="legend")
        + tag("p", "By author: ", authors)
        + tag(
            "details",
            tag("summary", shown),
            _table(["snapshot", "time", "author", "message", "changes", "more"], rows),
            open="" if len(rows) <= _SHOWN_FINDINGS else None,
        )
    )


def _snapshot_row(report: LakeReport, snapshot: Snapshot) -> list[Any]:
    extra = snapshot.extra
    more = "" if extra is None else extra if isinstance(extra, str) else json.dumps(extra, ensure_ascii=False)
    return [
        snapshot.snapshot_id,
        _time(snapshot.snapshot_time),
        snapshot.author or "",
        snapshot.message or "",
        ", ".join(_change(report, change) for change in snapshot.changes),
        tag("code", more) if more else "",
    ]


def _change(report: LakeReport, change: str) -> str:
    """Return a change with the name of its table."""
    kind, _, target = change.partition(":")
    known = report.history.names.get(int(target)) if target.isdecimal() and "schema" not in kind else None
    return f"{kind.replace('_', ' ')} {known or target}"


def _maintenance(report: LakeReport) -> Markup:
    if not report.runs:
        command = tag("code", "ducklake-orch maintain --plan")
        return tag("p", "No maintenance run is recorded. ", command, " shows what a run would do.")
    rows = [_run_row(run) for run in report.runs]
    return _table(["started", "duration", "status", "process", "result"], rows)


def _run_row(run: LastRun) -> list[Any]:
    took = "-" if run.ended_at is None else _age((run.ended_at - run.started_at).total_seconds())
    totals = run.summary.get("totals") or {}
    did = ", ".join(_did(name, count) for name, count in totals.items() if count)
    return [_time(run.started_at), took, run.status, f"process {run.process} on {run.host}", did or "nothing"]


def _did(figure: str, count: int) -> str:
    if figure.startswith("bytes"):
        return f"{in_bytes(count)} {_metric(figure)[6:]}".rstrip()
    return f"{_number(count)} {_metric(figure)}"


# --- formatting ------------------------------------------------------------------------------------------------------


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Markup:
    head = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in columns)))
    body = tag("tbody", *(tag("tr", *(tag("td", cell) for cell in row)) for row in rows))
    return tag("div", tag("table", head, body), class_="wide")


def _badge(grade: str) -> Markup:
    return tag("span", grade, class_=f"badge {grade}")


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _number(number: int) -> str:
    return f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def _age(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else "under a second"
