"""Generates docs/benchmarks.md from the output of the benchmarks in build/bench, with a chart per table of seconds.

`make bench` runs all benchmarks and then this module. A part that was not run keeps its last results.
"""

import os
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from tests.benchmarks.chart import bars

ROOT = Path(__file__).parents[2]
RESULTS, PAGE, PICTURES = ROOT / "build" / "bench", ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "images"
_SECONDS = re.compile(r"^([\d.]+) s$")
# A message that Delta prints into the output.
_SPOKEN = re.compile(r"^Deleted \d+ files and directories .*\n", re.MULTILINE)
_PACKAGES = ("duckdb", "pyarrow", "pyspark", "dagster", "apache-airflow")
_HEAD = """# Benchmarks

These benchmarks compare ducklake-orch with other systems that do the same work, in one run on one machine. Ratios carry
over to other machines, seconds do not. `make bench` runs all benchmarks and writes this page; targets such as
`make bench-spark` run one of them. Run them on an idle machine.

In the tables, *ours* is ducklake-orch.

{versions}
"""


@dataclass(frozen=True)
class Part:
    """One benchmark and its section.

    Attributes:
        name: The name of the make target and of the output file.
        title: The title of the section.
        about: What the benchmark measures, and the systems that it compares.
        aims: The highest acceptable ratio by column, for operations that match a pattern.
    """

    name: str
    title: str
    about: str
    aims: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


PARTS = (
    Part(
        "spark",
        "Writing and reading with Spark",
        "ducklake-orch, plain Parquet without a table format, Iceberg and Delta.",
        {
            "": {"ours / Iceberg": 1},
            "write$|full scan": {"ours / Parquet": 1.05},
            r"write, \d+ partitions": {"ours / Parquet": 1.1},
        },
    ),
    Part(
        "sql",
        "Queries in Spark's SQL",
        "`lake.sql`, plain Parquet and Iceberg: the queries of TPC-H.",
        {"all": {"ours / Iceberg": 1}},
    ),
    Part(
        "rows",
        "Changing rows",
        "ducklake-orch on both engines, Iceberg (merge-on-read) and Delta.",
        {"": {"auto / Iceberg": 0.7, "auto / Delta": 0.15, "spark / Iceberg": 1}},
    ),
    Part(
        "maintenance",
        "Maintenance",
        "ducklake-orch on each engine, the functions of the extension, Iceberg and Delta.",
        {"compact 500": {"auto / Iceberg": 0.2}, "compact": {"spark / Iceberg": 1}},
    ),
    Part(
        "layout",
        "Clustering",
        "ducklake-orch in this process, Delta's `OPTIMIZE ZORDER BY`, and Iceberg's z-order of `rewrite_data_files`.",
    ),
    Part(
        "dagster",
        "Dagster",
        "The overhead of the IO manager over a write, and a backfill compared with other IO managers.",
    ),
    Part("large", "A large lake", "The maintenance plan, the health report, and the report page in Chromium."),
    Part(
        "connect", "Opening a lake, and small writes", "Compared with plain DuckDB and careful hand-written statements."
    ),
    Part(
        "commit", "Commits", "Native commits on each catalog, and files registered by ducklake-orch and by the engine."
    ),
    Part(
        "appends",
        "Many small appends",
        "One process commits appends of ten rows from several threads, beside the INSERT of the extension.",
    ),
    Part(
        "transactions", "Transactions", "Transactions and stages over many tables and files, and as many single writes."
    ),
    Part(
        "upkeep",
        "Order of maintenance",
        "Simulated nights at a tight budget: what reads save by the order in which steps are done.",
    ),
    Part("plan", "Planning", "The duration of finding the files of a table, and how it grows."),
)


def versions() -> str:
    """Name the installed versions."""
    packages = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    return f"Versions: Python {platform.python_version()}, {packages}."


def machine() -> str:
    """Describe the machine."""
    models = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{models[0] if models else platform.processor()}, {os.cpu_count()} cores, {memory:.0f} GiB of memory"


def as_markdown(printed: str) -> str:
    """Return the output of a benchmark as Markdown: tables and headings unchanged, other lines as a list."""
    lines: list[str] = []
    for line in printed.splitlines():
        kept = not line or line.startswith(("|", "#"))
        if lines and line.startswith("|") != lines[-1].startswith("|"):
            lines.append("")
        lines.append(re.sub("^#+", "###", line) if kept else f"- {line}")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


@dataclass(frozen=True)
class Table:
    """A table in the output of a benchmark.

    Attributes:
        about: The text before the table, such as the number of rows.
        head: The names of the columns.
        lines: The cells.
    """

    about: str
    head: list[str]
    lines: list[list[str]]


def tables(printed: str) -> list[Table]:
    """Return the tables in the output of a benchmark."""
    result: list[Table] = []
    about, inside = "", False
    for line in printed.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            inside, about = False, line.partition(", ")[0] or about
        elif not inside:
            result.append(Table(about, cells, []))
            inside = True
        elif not line.startswith("|---"):
            result[-1].lines.append(cells)
    return result


def pictures(part: Part, printed: str) -> list[str]:
    """Draw a chart for each table of seconds; return the names of the files."""
    drawn = []
    for number, table in enumerate(tables(printed)):
        timed = [n for n in range(1, len(table.head)) if any(_SECONDS.match(line[n]) for line in table.lines)]
        if not timed or table.head[0] != "Work":
            continue
        names = [table.head[n] for n in timed]
        works = {line[0]: [_seconds(line[n]) for n in timed] for line in table.lines}
        picture = PICTURES / f"bench-{part.name}-{number + 1}.svg"
        picture.write_text(bars(names, works), "utf-8")
        drawn.append(picture.name)
    return drawn


def _seconds(cell: str) -> float | None:
    match = _SECONDS.match(cell)
    return float(match[1]) if match else None


@dataclass(frozen=True)
class Ratio:
    """The ratio between the durations of two systems.

    Attributes:
        work: The operation.
        where: The table, if the output has several.
        pair: The two systems.
        value: The ratio.
    """

    work: str
    where: str
    pair: str
    value: float

    def __str__(self) -> str:
        return f"- {self.work}{self.where}: {self.pair} = {self.value:g}"


def ratios(printed: str) -> Iterator[Ratio]:
    """Yield the cells with ratios."""
    output_tables = tables(printed)
    for table in output_tables:
        where = f" ({table.about})" if len(output_tables) > 1 else ""
        for line in table.lines:
            for name, cell in zip(table.head, line, strict=True):
                if " / " in name and re.fullmatch(r"[\d.]+", cell):
                    yield Ratio(line[0], where, name, float(cell))


def losses(printed: str) -> list[str]:
    """Return the ratios of operations in which another system is faster."""
    return [str(ratio) for ratio in ratios(printed) if ratio.value > 1]


def missed(part: Part, printed: str) -> list[str]:
    """Return the ratios that exceed their limits."""
    misses = []
    for ratio in ratios(printed):
        limits = [
            aims[ratio.pair] for work, aims in part.aims.items() if re.match(work, ratio.work) and ratio.pair in aims
        ]
        if limits and ratio.value > min(limits):
            misses.append(f"{ratio}, and the target is {min(limits):g}")
    return misses


def kept_section(page: str, part: Part) -> str | None:
    """Return the section of a part that was not run, as the page has it."""
    found = re.search(rf"^## {re.escape(part.title)}\n.*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return found[0] if found else None


def main() -> None:
    """Write the page."""
    sections, lost, short = [_HEAD.format(versions=versions())], list[str](), list[str]()
    page = PAGE.read_text("utf-8") if PAGE.exists() else ""
    for part in PARTS:
        result = RESULTS / f"{part.name}.md"
        if not result.exists():
            if (section := kept_section(page, part)) is not None:
                sections.append(section)
                tables = re.sub("^- ", "", section, flags=re.MULTILINE)
                lost += losses(tables)
                short += missed(part, tables)
            continue
        printed = _SPOKEN.sub("", result.read_text("utf-8"))
        day = datetime.fromtimestamp(result.stat().st_mtime, UTC).date()
        images = [f"![{part.title}](images/{name})" for name in pictures(part, printed)]
        again = f"Measured on {day} ({machine()}); run again: `make bench-{part.name}`."
        sections.append("\n\n".join([f"## {part.title}", f"{part.about} {again}", as_markdown(printed), *images]))
        lost += losses(printed)
        short += missed(part, printed)
    for title, lines in (
        ("Operations in which other systems are faster", lost),
        ("Operations that miss their target", short),
    ):
        sections.append(f"## {title}\n\n{chr(10).join(lines) or 'None in these tables.'}")
    PAGE.write_text("\n\n".join(section.strip() for section in sections) + "\n", "utf-8")


if __name__ == "__main__":
    main()
