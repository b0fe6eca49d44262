"""The storage of the lake: live bytes over time, and the bytes that only history or clean-up holds."""

from ducklake_orch.config.units import in_bytes
from ducklake_orch.report.collect import LakeReport
from ducklake_orch.report.formatting import counted, time
from ducklake_orch.report.markup import Markup, area_chart, shares, tag


def storage_section(report: LakeReport) -> Markup:
    """Return the growth of the lake, and what its bytes are for."""
    history, metrics = report.history, report.health.lake.metrics
    growth = history.total_growth
    files, past = sum(table.files for table in history.past.values()), report.past_bytes
    about = f"Live bytes from {time(history.since)} to {time(history.until)}"
    chart = area_chart(growth, about, [in_bytes(max(growth)), f"{history.since:%Y-%m-%d}", f"{history.until:%Y-%m-%d}"])
    parts = [
        ("live", metrics["bytes"], f"live: {counted(metrics['files'], 'file')} of the latest snapshot"),
        ("history", past, f"only history: {counted(files, 'file')} that older snapshots read until they expire"),
        ("pending", metrics["pending_bytes"], f"waiting for clean-up: {counted(metrics['pending_files'], 'file')}"),
    ]
    known = [(name, size, explained) for name, size, explained in parts if size]
    legend = (
        tag("li", tag("span", tag("strong", in_bytes(size)), f" {explained}"), class_=name)
        for name, size, explained in known
    )
    change = growth[-1] - growth[0]
    grown = f"{in_bytes(abs(change))} {'more' if change >= 0 else 'less'} than at {time(history.since)}"
    return Markup(
        tag("p", f"{in_bytes(growth[-1])} live, {grown}.")
        + chart
        + shares([(name, size) for name, size, _ in known])
        + tag("ul", *legend, class_="legend column")
    )
