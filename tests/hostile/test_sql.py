"""Hostile SQL: scripts, conditions, values and names are read as the engine reads them or refused, in linear time."""

import time
from functools import cache
from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.config.redaction import Scrubber
from ducklake_orch.engine.execute import only_reads
from ducklake_orch.engine.scripts import MAINTENANCE, classify_statement, redact, secrets_in, split
from ducklake_orch.engine.tokens import bare
from ducklake_orch.errors import DuckLakeOrchError
from tests.hostile.cases import kinds_of, run_kind
from tests.hostile.damage import hostile_text

MEMORY_MB = 1500
CALL = "ducklake_expire_snapshots('lake')"
# What may hide a call, or the end of what hides one.
HIDING = [
    f"'{CALL.replace(chr(39), chr(39) * 2)}'",
    "'it''s'",
    "E'a\\'b'",
    "$$ ' $$",
    "$a$ $$ ' -- $a$",
    "'--'",
    "'/*'",
    "'\"'",
    '"it\'s"',
    '"--"',
    '"/*"',
    '"$$"',
    '"a""b\'"',
    f'"{CALL}"',
    "e'\\\\'",
]
SPACE = [
    " ",
    "\n",
    "\t",
    "/* ' */",
    "/* /* */ ' */",
    "-- '\n",
    '-- "\r',
    "/*--*/",
    f"/* {CALL} */",
    f"-- {CALL}\n",
    "--\r",
    "\f",
]


def statement(pick: Random, called: bool) -> str:
    """Return a SELECT whose strings, names and comments hide calls; `called` says whether it really has one."""

    def space() -> str:
        return "".join(pick.choice(SPACE) for _ in range(pick.choice([1, 1, 2, 3])))

    items = [f"{pick.choice(HIDING)}{space()}" for _ in range(pick.randrange(1, 5))]
    parts = []
    for number, item in enumerate(items):
        is_name = item.startswith('"')
        parts.append(f"{number}{space()}AS{space()}{item}" if is_name else item)
    source = "ducklake_expire_snapshots('lake')" if called else "range(3)"
    return f"{space()}SELECT{space()}{f',{space()}'.join(parts)}FROM{space()}{source}{space()}"


def case_calls(seed: int, folder: Path) -> str:
    """A maintenance call is found exactly if it is one, and statements end where they do for the engine."""
    pick = Random(seed)
    called = [pick.random() < 0.5 for _ in range(pick.randrange(1, 4))]
    script = ";".join(statement(pick, one) for one in called)
    with duckdb.connect() as con:
        commands = split(con, script)
        texts = [each.query.strip().rstrip(";").strip() for each in con.extract_statements(script)]
    assert [command.sql for command in commands] == texts, script
    found = [bool(command.calls & MAINTENANCE) for command in commands]
    assert found == called, script
    assert [command.kind for command in commands] == ["maintenance" if one else "query" for one in called], script
    return f"{len(called)} statements"


SCRIPTS = [
    "CREATE TABLE t (a INTEGER DEFAULT 1, b VARCHAR); INSERT INTO t VALUES (1, 'x;y'), (2, $$a;b$$); SELECT * FROM t",
    "PIVOT t ON a USING sum(b); CALL lake.set_option('x', 1); EXPLAIN ANALYZE DELETE FROM t WHERE a = 1;;",
    "BEGIN; UPDATE t SET a = 2 WHERE b = 'it''s' -- no\n; COMMIT; CHECKPOINT; COPY (SELECT 1) TO 'x.parquet'",
    "CREATE SECRET s (TYPE s3, SECRET 'canary', KEY_ID E'a\\'b'); SET s3_access_key_id = 'x'; FROM t AT (VERSION => 3)",
    "EXPORT DATABASE 'x'; MERGE INTO t USING u ON a = 1 WHEN MATCHED THEN DELETE; PREPARE p AS SELECT $1; EXECUTE p(1)",
]
PARTS = [
    "'",
    '"',
    "$$",
    "--",
    "/*",
    "*/",
    ";",
    "E'\\''",
    "\\",
    "\0",
    "(",
    ")",
    CALL,
    "SET x = ",
    "SECRET",
    "AT (VERSION",
]


def case_scripts(seed: int, folder: Path) -> str:
    """A damaged script is split as the engine splits it, or refused."""
    pick = Random(seed)
    script = hostile_text(pick.choice(SCRIPTS), pick, PARTS)
    only_reads(script)
    redact(script, Scrubber())
    with duckdb.connect() as con:
        try:
            commands = split(con, script)
        except (duckdb.Error, DuckLakeOrchError):
            return "refused"
        whole = con.extract_statements(script)
    texts = [each.query.strip() for each in whole]
    if all(texts):
        assert [command.sql for command in commands] == [text.rstrip(";").strip() for text in texts], script
    assert "\0" not in script, "text after a NUL is not run"
    return "split"


LONG = [
    "a",
    "SET ",
    "SET",
    "PRAGMA x ",
    "$$ ",
    "://",
    "x://a:",
    "'",
    "password = '\\",
    "a.",
    "EXPLAIN (ANALYZE",
    "a@",
    "$1$ ",
    "--",
]


def case_long(seed: int, folder: Path) -> str:
    """Long texts take linear time."""
    pick = Random(seed)
    text = pick.choice(LONG) * pick.choice([1, 10]) + "".join(pick.choice(LONG) for _ in range(pick.choice([0, 0, 2])))
    text = (text * (100_000 // len(text)))[:100_000]
    started = time.monotonic()
    redact(text, Scrubber(["canary"]))
    redact(f"SELECT '{text}'", Scrubber(["canary"]))
    secrets_in(f"SET x = '{text}'; SELECT 1 -- {text}")
    classify_statement(f"SELECT {text}", "SELECT")
    classify_statement(f"EXPLAIN {text}", "EXPLAIN").reads_history  # noqa: B018
    bare(f"SELECT '{text}")
    seconds = time.monotonic() - started
    assert seconds < 20, f"{seconds} s for {text[:40]!r}"
    return "in time"


CONDITIONS = [
    "k = 1",
    "k IN (1, 2, 3) AND v LIKE 'a%'",
    "v = 'it''s' OR \"k\" IS NULL",
    "NOT (k BETWEEN 1 AND 3) -- all others",
    "v || '/*' <> $$--$$ AND k::VARCHAR <> '*/'",
    "CASE WHEN k > 2 THEN v = 'b' ELSE k < 1 END",
    "len(v) > 0 AND list_contains([1, 2], k)",
    "d > DATE '2024-01-01' + INTERVAL 1 DAY",
]
WORDS = [
    "k",
    "v",
    "'",
    '"',
    ")",
    "(",
    "--",
    "/*",
    "*/",
    ";",
    "$$",
    "OR true",
    "UNION",
    "SELECT 1",
    "\0",
    "\n",
    "$1",
    "?",
    "E'\\'",
    "::",
    "random()",
]


@cache
def lake_of(folder: Path) -> DuckLake:
    lake = DuckLake.local(folder / "lake", data_inlining_row_limit=0)
    table = pa.table({"k": [0, 1, 2, 3, None], "v": ["", "a", "it's", "--", "*/"], "d": [None] * 5})
    lake.create_table("t", {"k": "BIGINT", "v": "VARCHAR", "d": "DATE"})
    lake.write(table.cast(pa.schema([("k", pa.int64()), ("v", pa.string()), ("d", pa.date32())])), "t", mode="append")
    return lake


def case_conditions(seed: int, folder: Path) -> str:
    """A condition selects the rows that it selects between parentheses in the engine's own SQL, or is refused."""
    lake, pick = lake_of(folder), Random(seed)
    where = hostile_text(pick.choice(CONDITIONS), pick, WORDS)
    with lake.connect(read_only=True) as con:
        try:
            expected = con.execute(f"SELECT count(*) FROM t WHERE (\n{where}\n)").fetchall()[0][0]
        except Exception as error:  # also what its client raises for a text that is not Unicode
            expected = error
    found = [outcome(lambda: lake.read("t", where=where).num_rows)]
    found.append(outcome(lambda: lake.delete("t", where, dry_run=True).rows_removed))
    answers = [one for one in found if isinstance(one, int)]
    if isinstance(expected, Exception):
        assert not answers, f"{where!r} is not a condition ({expected}), and {answers} rows match"
        return "refused, as by the engine"
    assert all(one == expected for one in answers), f"{where!r}: {answers}, not {expected}"
    assert not answers or "\0" not in where, f"{where!r}: what follows NUL is ignored"
    return "the same rows" if len(answers) == 2 else "refused, not by the engine"


def outcome(work: object) -> object:
    try:
        return work()  # type: ignore[operator]
    except DuckLakeOrchError as error:
        return error


VALUES = [
    "v || '!'",
    "k + 1",
    "'it''s'",
    "NULL",
    "CASE k WHEN 1 THEN 'x' END",
    "$$a$$",
    "upper(v)",
    "date_trunc('day', d)",
]
KEYS = ["k", "bucket(4, k)", "day(d)", '"v"', "year(d)", "truncate(3, v)", "v DESC NULLS LAST", "identity(k)"]


def case_values(seed: int, folder: Path) -> str:
    """Values, defaults, partition keys, sort keys, names and types are used or refused."""
    lake, pick = lake_of(folder), Random(seed)
    value, key = hostile_text(pick.choice(VALUES), pick, WORDS), hostile_text(pick.choice(KEYS), pick, WORDS)
    name = hostile_text("new", pick, WORDS)
    works = [
        lambda: lake.update("t", {"v": value}, "k = 99", dry_run=True),
        lambda: lake.create_table(name, {"k": "BIGINT", "v": "VARCHAR", "d": "DATE"}, partition_by=[key]),
        lambda: lake.create_table(name, {"k": "BIGINT", "v": "VARCHAR"}, sort_by=[key]),
        lambda: lake.create_table(name, {"k": "BIGINT", name: "VARCHAR"}, defaults={name: value}),
        lambda: lake.create_table("typed", {"k": hostile_text("DECIMAL(10, 2)[]", pick, WORDS)}, if_not_exists=True),
        lambda: lake.read(name),
        lambda: lake.read("t", columns=[key]),
        lambda: lake.set_option(name, value, table=key),
        lambda: lake.tag(name),
        lambda: lake.execute(f"SELECT {value} FROM t WHERE {key}"),
    ]
    for work in pick.sample(works, 3):
        outcome(work)
    for table in lake.tables():
        if table.table != "t":
            lake.drop_table(f'{table.schema}."{table.table.replace(chr(34), chr(34) * 2)}"')
    return "used or refused"


CASES = {
    "calls": (case_calls, 200, 3000),
    "scripts": (case_scripts, 200, 3000),
    "long": (case_long, 3, 60),
    "conditions": (case_conditions, 20, 1000),
    "values": (case_values, 10, 400),
}


@pytest.mark.parametrize("kind", kinds_of(CASES))
def test_sql_is_read_as_the_engine_reads_it_or_refused(kind: str, tmp_path: Path) -> None:
    run_kind(kind, CASES, tmp_path, memory_mb=MEMORY_MB)
