"""Draws the chart in the README from docs/benchmarks.md: durations of ducklake-orch relative to those of Iceberg.

`make bench` runs it after it has written the page; `python -m tests.benchmarks.summary` runs it alone.
"""

from html import escape

from tests.benchmarks.page import PAGE, PICTURES, tables

# Works of the page by their names in the chart: the text before the table (its rows), the work, the column.
_WORKS = {
    "write 20 M rows": ("20,000,000 rows", "write", "ours / Iceberg"),
    "write 20 M rows, 8 partitions": ("20,000,000 rows", "write, 8 partitions", "ours / Iceberg"),
    "replace one of 8 partitions": ("5,000,000 rows", "replace one of 8 partitions", "ours / Iceberg"),
    "merge 200,000 rows into 5 M": ("5,000,000 rows", "merge 200,000 rows, all files", "auto / Iceberg"),
    "update 1 % of 5 M rows": ("5,000,000 rows", "update 1 % of the rows", "auto / Iceberg"),
    "delete 1 % of 5 M rows": ("5,000,000 rows", "delete 1 % of the rows", "auto / Iceberg"),
    "changes of 100 snapshots": ("5,000,000 rows", "change feed of 100 snapshots", "auto / Iceberg"),
    "compact 500 files": ("Spark", "compact 500 files", "auto / Iceberg"),
    "ten appends of 100 rows": ("5,000,000 rows", "ten appends of 100 rows", "ours / Iceberg"),
    "scan 5 M rows": ("5,000,000 rows", "full scan, three aggregates", "ours / Iceberg"),
    "filtered scan": ("5,000,000 rows", "filtered scan", "ours / Iceberg"),
    "scan with 5 % of 5 M rows deleted": ("5,000,000 rows", "scan with 5 % deleted", "ours / Iceberg"),
}
_LEFT, _UNIT, _ROW = 250, 240, 22
_STYLE = """<style>text{font:13px system-ui,sans-serif;fill:#1d2330}line{stroke:#1d2330}
@media(prefers-color-scheme:dark){text{fill:#e6e9ef}line{stroke:#e6e9ef}}</style>"""


def ratios(page: str) -> dict[str, float]:
    """Return the ratios to Iceberg in the page, by their names in the chart."""
    found = {
        (table.about.removeprefix("- ").partition(" 4")[0], line[0], name): cell
        for table in tables(page)
        for line in table.lines
        for name, cell in zip(table.head, line, strict=True)
    }
    return {name: float(found[work]) for name, work in _WORKS.items()}


def chart(values: dict[str, float]) -> str:
    """Return a bar for each ratio, and a line where both take the same time."""
    parts = ['<text x="8" y="18">Duration relative to Iceberg (the line): shorter is faster</text>']
    bottom = 34 + _ROW * len(values)
    for number, (name, ratio) in enumerate(values.items()):
        y, colour = 30 + _ROW * number, "#2f6fde" if ratio <= 1 else "#c98a3a"
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect x="{_LEFT}" y="{y + 2}" width="{ratio * _UNIT:.0f}" height="14" fill="{colour}"/>')
        parts.append(f'<text x="{_LEFT + ratio * _UNIT + 6:.0f}" y="{y + 13}">{ratio:.2f}</text>')
    parts.append(f'<line x1="{_LEFT + _UNIT}" y1="26" x2="{_LEFT + _UNIT}" y2="{bottom}"/>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 780 {bottom + 6}" width="780" role="img">'
    return f"{head}{_STYLE}{''.join(parts)}</svg>\n"


def main() -> None:
    """Draw the chart."""
    (PICTURES / "bench-summary.svg").write_text(chart(ratios(PAGE.read_text("utf-8"))), "utf-8")


if __name__ == "__main__":
    main()
