"""Render the report page: one HTML document that contains its style, script and data."""

from importlib.resources import files

from ducklake_orch.config.units import in_bytes
from ducklake_orch.report.attention_section import attention_section
from ducklake_orch.report.collect import LakeReport
from ducklake_orch.report.formatting import age, badge, counted, number, time
from ducklake_orch.report.maintenance_section import maintenance_section
from ducklake_orch.report.markup import Markup, tag
from ducklake_orch.report.storage_section import storage_section
from ducklake_orch.report.tables_section import table_facts, tables_section
from ducklake_orch.report.writers_section import snapshots_section, writers_section

_SECTIONS = {
    "attention": ("Needs attention", attention_section),
    "tables": ("Tables", tables_section),
    "storage": ("Storage", storage_section),
    "writers": ("Writers", writers_section),
    "maintenance": ("Maintenance", maintenance_section),
    "snapshots": ("Snapshots", snapshots_section),
}


def page(report: LakeReport) -> str:
    """Return the HTML document."""
    style, script = (files(__package__).joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    first, *others = (
        tag("section", tag("h2", title), render(report), id=name) for name, (title, render) in _SECTIONS.items()
    )
    body = tag("main", first, _tiles(report), *others)
    # The page makes no network request, whatever text it contains.
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" '
        f'content="light dark"><link rel="icon" href="data:,">{tag("title", f"{report.name}: DuckLake report")}'
        f"<style>{style}</style></head>\n<body>{_head(report)}{body}"
        f'<script type="application/json" id="facts">{table_facts(report)}</script>'
        f"<script>{script}</script></body></html>\n"
    )


def _head(report: LakeReport) -> Markup:
    links = (tag("a", title, href=f"#{name}") for name, (title, _) in _SECTIONS.items())
    where = f"{report.catalog} · {report.storage} · {time(report.at)}, snapshot {report.snapshot}"
    title = tag("h1", report.name, " ", badge(report.health.grade))
    return tag("header", title, tag("p", where, class_="where"), tag("nav", *links, aria_label="On this page"))


def _tiles(report: LakeReport) -> Markup:
    """Return the figures of the lake; those that are zero are left out."""
    metrics = report.health.lake.metrics
    orphans, catalog = metrics["orphan_files"], metrics["catalog_bytes"]
    figures = [
        ("Tables", metrics["tables"], number(metrics["tables"]), ""),
        ("Rows", metrics["rows"], number(metrics["rows"]), _deleted(metrics["deleted_rows"])),
        ("Live data", metrics["files"], in_bytes(metrics["bytes"]), counted(metrics["files"], "file")),
        ("Only history", report.past_bytes, in_bytes(report.past_bytes), "freed by expiry"),
        ("Snapshots", 1, number(metrics["snapshot_count"]), f"the oldest {age(metrics['snapshot_age'])} old"),
        ("Last snapshot", 1, f"{age(metrics['latest_snapshot_age'])} ago", ""),
        ("Inlined rows", metrics["inlined_rows"], number(metrics["inlined_rows"]), "waiting for a flush"),
        ("Orphans", orphans, number(orphans or 0), "as of the last search"),
        ("Catalog", catalog, in_bytes(catalog or 0), f"format {metrics['format_version']}"),
    ]
    tiles = (
        tag("div", tag("dt", name), tag("dd", shown, tag("small", more))) for name, is_, shown, more in figures if is_
    )
    return tag("dl", *tiles, class_="tiles")


def _deleted(rows: int) -> str:
    return f"{number(rows)} deleted in files" if rows else ""
