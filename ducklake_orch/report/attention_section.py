"""The first section of the page: what needs attention, worst first, with the command that helps."""

from datetime import timedelta

from ducklake_orch.config.units import in_words
from ducklake_orch.maintenance.health_report import GRADES, HealthFinding
from ducklake_orch.report.collect import LakeReport
from ducklake_orch.report.formatting import badge, command, counted, figure, time
from ducklake_orch.report.markup import Markup, tag

# Further items are folded.
_SHOWN = 25
_WORDS = {
    "write_age": "No row has changed for {value}; expected within {threshold}",
    "small_file_ratio": "{value} of the files are small; the threshold is {threshold}",
    "files_per_partition": "A partition has {value} files; the threshold is {threshold}",
    "delete_share": "{value} of the stored rows are deleted; the threshold is {threshold}",
    "inlined_rows": "{value} rows are only in the catalog; the threshold is {threshold}",
    "snapshot_count": "{value} snapshots can expire; the threshold is {threshold}",
    "snapshot_age": "The oldest snapshot that can expire is {value} old; the threshold is {threshold}",
    "pending_bytes": "{value} wait for clean-up; the threshold is {threshold}",
}
# How runs of maintenance end that did not do all their work.
_FAILED = {
    "error": "Steps of the last maintenance run failed",
    "stopped": "The last maintenance run stopped before its end",
    "died": "The process of the last maintenance run died",
}

_REMEDY = "`ducklake-orch maintain` does the rest and names the errors"


def attention_section(report: LakeReport) -> Markup:
    """Return the findings of the health, and whether the last maintenance run failed."""
    found = [("lake", finding) for finding in report.health.lake.findings]
    found += [(table.table, finding) for table in report.health.tables for finding in table.findings]
    found.sort(key=lambda entry: (-GRADES.index(entry[1].grade), entry[0]))
    items = [_item(finding.grade, where, sentence(finding), finding.remedy) for where, finding in found]
    run = next(iter(report.runs), None)
    if run is not None and run.status in _FAILED:
        items.insert(0, _item("warn", "maintenance", f"{_FAILED[run.status]}, {time(run.started_at)}", _REMEDY))
    if not items:
        graded = counted(len(report.health.tables), "table")
        return tag("p", f"Nothing: no figure of the lake and of {graded} has reached its threshold.")
    shown = tag("ul", *items[:_SHOWN], class_="attention")
    if more := items[_SHOWN:]:
        folded = tag("ul", *more, class_="attention")
        shown = Markup(shown + tag("details", tag("summary", f"{len(more)} more"), folded))
    return shown


def _item(grade: str, where: str, what: str, remedy: str) -> Markup:
    about = tag("div", tag("strong", where), " ", what, tag("div", command(remedy), class_="remedy"))
    return tag("li", badge(grade), about)


def sentence(finding: HealthFinding) -> str:
    """Return what a figure of the health says, with its threshold."""
    value, threshold = figure(finding.metric, finding.value), figure(finding.metric, finding.threshold)
    if finding.metric.endswith("age"):
        threshold = in_words(timedelta(seconds=finding.threshold))
    return _WORDS[finding.metric].format(value=value, threshold=threshold)
