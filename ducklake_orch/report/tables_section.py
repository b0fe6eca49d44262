"""The tables of the lake: a list to sort and search, and the figures that the script draws when a table is opened."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from ducklake_orch.config.units import in_bytes, in_words
from ducklake_orch.maintenance.health_report import GRADES, TableHealth
from ducklake_orch.report.attention_section import sentence
from ducklake_orch.report.collect import LakeReport
from ducklake_orch.report.formatting import age, badge, counted, number, share, words
from ducklake_orch.report.history import PERIODS
from ducklake_orch.report.markup import Markup, sparkline, tag

# These columns are left out if no table has such figures.
_OPTIONAL = ("small files", "overlap", "deleted", "inlined", "only history")
_WORDS = ("table", "health", "last write", "growth")
Cell = tuple[Any, float | str]


def tables_section(report: LakeReport) -> Markup:
    """Return the list of tables; empty tables are folded."""
    tables = report.health.tables
    if not tables:
        return tag("p", "The lake has no tables yet.")
    cells = [dict(_cells(report, index, table)) for index, table in enumerate(tables)]
    columns = [name for name in cells[0] if name not in _OPTIONAL or any(row[name][1] for row in cells)]
    heads = (tag("th", tag("button", name, type="button"), scope="col", class_=_class(name)) for name in columns)
    rows = [
        tag("tr", *(_cell(name, *row[name]) for name in columns), class_="empty" if _is_empty(table) else None)
        for row, table in zip(cells, tables, strict=True)
    ]
    search = tag("label", "Find ", Markup('<input type="search" id="find" autocomplete="off">'))
    empty = sum(map(_is_empty, tables))
    fold = tag("label", Markup('<input type="checkbox" id="all"> '), f"Show {counted(empty, 'empty table')}")
    listed = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), id="list", class_="cards")
    return Markup(tag("div", search, *[fold][:empty], class_="find") + tag("div", listed, class_="wide"))


def _is_empty(table: TableHealth) -> bool:
    return not (table.metrics["rows"] or table.metrics["files"] or table.findings)


def _cells(report: LakeReport, index: int, table: TableHealth) -> Iterator[tuple[str, Cell]]:
    """Yield each column with its cell and the value to sort by."""
    metrics, table_id, history = table.metrics, report.ids[table.table], report.history
    growth = history.growth.get(table_id, [0] * PERIODS)
    past = history.past.get(table_id)
    keys, depth = report.overlaps.get(table.table, ("", 0.0))
    opener = tag("button", table.table, type="button", aria_expanded="false", data_table=index)
    yield "table", (opener, table.table)
    yield "health", (badge(table.grade), GRADES.index(table.grade))
    yield "last write", (_last_write(report, table), -metrics["write_age"])
    yield "rows", (number(metrics["rows"]), metrics["rows"])
    yield "size", (in_bytes(metrics["bytes"]), metrics["bytes"])
    grown = sparkline(growth, f"from {in_bytes(growth[0])} to {in_bytes(growth[-1])}")
    yield "growth", (grown, growth[-1] - growth[0])
    yield "files", (number(metrics["files"]), metrics["files"])
    yield "small files", (number(metrics["small_files"]), metrics["small_files"])
    times = tag("span", f"{depth:.1f}", title=f"files of a partition hold a value of {keys}")
    yield "overlap", (times, depth)
    yield "deleted", (share(metrics["delete_share"]), metrics["delete_share"])
    yield "inlined", (number(metrics["inlined_rows"]), metrics["inlined_rows"])
    yield "only history", ("", 0) if past is None else (in_bytes(past.bytes), past.bytes)


def _last_write(report: LakeReport, table: TableHealth) -> Markup:
    expected = report.fresh_within.get(table.table)
    late = next((finding.grade for finding in table.findings if finding.metric == "write_age"), None)
    about = tag("small", f"expected within {in_words(timedelta(seconds=expected))}") if expected is not None else ""
    return tag("span", f"{age(table.metrics['write_age'])} ago", about, class_=late)


def _class(column: str) -> str | None:
    return None if column in _WORDS else "number"


def _cell(column: str, inside: Any, sort: float | str) -> Markup:
    is_zero = column not in _WORDS and not sort
    shown = "" if is_zero else inside
    classes = " ".join(filter(None, (_class(column), "zero" if is_zero else None))) or None
    return tag("td", shown, data_sort=sort, class_=classes, data_label=column)


def table_facts(report: LakeReport) -> str:
    """Return the data that the script draws when a table is opened, as JSON that cannot end its script element."""
    tables = [
        {
            "sizes": [[words(name), count] for name, count in table.metrics["file_sizes"].items() if count],
            "partitions": table.metrics["partitions"],
            "cells": [
                [cell.label, cell.partitions, cell.files, cell.bytes, cell.rows]
                for cell in report.partitions.get(table.table, ())
            ],
            "findings": [f"{sentence(finding)}: {finding.remedy.replace('`', '')}" for finding in table.findings],
        }
        for table in report.health.tables
    ]
    return json.dumps(tables, separators=(",", ":")).replace("<", "\\u003c")
