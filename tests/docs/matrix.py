"""The compatibility matrix of features and backends, generated from `matrix.toml` and the collected tests."""

import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from tests.docs.pages import REPOSITORY

DATA = REPOSITORY / "tests" / "docs" / "matrix.toml"
PAGE = REPOSITORY / "docs" / "compatibility.md"
BEGIN, END = "<!-- the matrix: begin -->", "<!-- the matrix: end -->"
CATALOGS = {"sqlite": "SQLite", "duckdb": "DuckDB file", "postgres": "PostgreSQL", "mysql": "MySQL, MariaDB"}
STORAGES = {"local": "local", "s3": "S3", "r2": "R2", "gcs": "GCS", "azure": "Azure"}
_PLACE = re.compile(rf"\b({'|'.join(CATALOGS)})-(local|s3-memory|s3-disk|r2|gcs|azure)\b")
NOT_VERIFIED = "–"  # noqa: RUF001 - as in all tables of the docs
Place = tuple[str, str]


def load() -> dict[str, Any]:
    """Return the contents of `matrix.toml`."""
    return tomllib.loads(DATA.read_text("utf-8"))


def named_tests(data: Mapping[str, Any]) -> dict[str, None]:
    """Return the named tests, each once, in the order of the page."""
    names = [name for feature in data["feature"] for engine in data["engines"] for name in feature.get(engine, [])]
    return dict.fromkeys(name.partition(" @ ")[0] for name in names)


def collect(tests: Iterable[str]) -> dict[str, set[Place]]:
    """Collect the files of the tests; return each test with the catalogs and storages in its node ids."""
    files = sorted({test.partition("::")[0] for test in tests})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    completed = subprocess.run([*command, *files], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    places: dict[str, set[Place]] = defaultdict(set)
    for line in completed.stdout.splitlines():
        if "::" in line:
            name, _, parameters = line.partition("[")
            places[name].update((catalog, storage.partition("-")[0]) for catalog, storage in _PLACE.findall(parameters))
    return places


def matrix(data: Mapping[str, Any], places: Mapping[str, set[Place]]) -> str:
    """Return one table per engine, and the list of tests that the cells reference by number."""
    numbers = {test: number for number, test in enumerate(named_tests(data), 1)}
    parts = []
    for engine, title in data["engines"].items():
        headings = ["", *CATALOGS.values(), "MotherDuck", *STORAGES.values()]
        lines = [f"### {title}", "", _row(headings), _row(["---"] * len(headings))]
        for feature in data["feature"]:
            if engine in feature:
                why = feature.get("no", {}).get(engine, {})
                lines.append(_row([feature["name"], *_cells(feature[engine], places, numbers, why)]))
        parts.append("\n".join(lines))
    tests = "\n".join(f"{number}. `{test}`" for test, number in numbers.items())
    return "\n\n".join([*parts, f"### The tests\n\n{tests}"])


def _cells(
    tests: Iterable[str], places: Mapping[str, set[Place]], numbers: Mapping[str, int], why: Mapping[str, int]
) -> list[str]:
    proofs: dict[str, list[int]] = defaultdict(list)
    for given in tests:
        test, _, where = given.partition(" @ ")
        backends = {(catalog, storage.partition("-")[0]) for catalog, storage in _PLACE.findall(where)} or places[test]
        for name in {name for backend in backends for name in backend}:
            proofs[name].append(numbers[test])
    cells = []
    for name in (*CATALOGS, "motherduck", *STORAGES):
        proven = f"✓ {', '.join(map(str, sorted(proofs[name])))}" if proofs[name] else NOT_VERIFIED
        cells.append(f"✗ *{why[name]}*" if name in why else proven)
    return cells


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def written() -> str:
    """Return the matrix in the page."""
    return PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0].strip()


if __name__ == "__main__":
    data = load()
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    generated = matrix(data, collect(named_tests(data)))
    PAGE.write_text(f"{before}{BEGIN}\n\n{generated}\n\n{END}{rest.partition(END)[2]}", "utf-8")
