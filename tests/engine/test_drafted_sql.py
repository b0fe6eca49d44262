"""SQL on MySQL, where it runs in a draft: the same results as on SQLite, where the extension commits it itself."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ducklake_orch import CommitInfo, DuckLake, errors
from ducklake_orch.results import CommandResult, ExecuteResult
from tests.servers.mariadb import MariaDBServer
from tests.support.backends import MYSQL, SQLITE
from tests.support.fault_points import dies_at
from tests.support.lakes import Servers, catalog_fields

STATEMENTS = [
    "CREATE TABLE t (id INTEGER, name VARCHAR DEFAULT 'new', price DECIMAL(9, 2), made TIMESTAMP)",
    "INSERT INTO t VALUES (1, 'a', 1.5, '2024-01-01 10:00:00.123456'), (2, 'b', 2.5, NULL)",
    "INSERT INTO t (price, id) VALUES (3.5, 3), (NULL, 4)",
    "INSERT INTO t BY NAME SELECT 5 AS id, 5 AS price",
    "INSERT INTO t SELECT id + 10, upper(name), price * 2, made FROM t WHERE id < 3",
    "INSERT INTO t (id, name) SELECT range, 'many ' || range FROM range(100, 300)",
    "INSERT INTO t SELECT * FROM t WHERE false",
    "WITH more AS (SELECT 400 AS id) INSERT INTO t (id) FROM more",
    "UPDATE t SET name = 'x' || id, price = coalesce(price, 0) + 1 WHERE id IN (SELECT id FROM t WHERE id % 2 = 0)",
    "UPDATE t SET name = 'nobody' WHERE id = -1",
    "CREATE TABLE news AS SELECT range AS id, 'news ' || range AS name FROM range(1, 7)",
    "UPDATE t SET name = news.name FROM news WHERE t.id = news.id AND news.id < 3",
    "UPDATE main.t AS x SET price = (SELECT max(id) FROM news) WHERE x.id = 4",
    "DELETE FROM t WHERE id > (SELECT avg(id) FROM t) AND id % 3 = 0",
    "DELETE FROM t USING news WHERE t.id = news.id AND news.id = 5",
    "MERGE INTO t USING news ON t.id = news.id WHEN MATCHED AND news.id = 1 THEN DELETE",
    "MERGE INTO t USING news ON t.id = news.id"
    " WHEN MATCHED THEN UPDATE SET name = 'merged ' || news.name"
    " WHEN NOT MATCHED THEN INSERT (id, name) VALUES (news.id, news.name)",
    "MERGE INTO t USING (SELECT 2 AS id) AS s ON t.id = s.id WHEN NOT MATCHED BY SOURCE AND t.id > 250 THEN DELETE",
    "ALTER TABLE t RENAME COLUMN name TO title",
    "ALTER TABLE t ADD COLUMN stock INTEGER DEFAULT 7",
    "INSERT INTO t (id, title) VALUES (500, 'five hundred')",
    "ALTER TABLE t ALTER COLUMN stock SET DATA TYPE BIGINT",
    "ALTER TABLE t ALTER COLUMN stock SET DEFAULT 8",
    "INSERT INTO t (id) VALUES (501)",
    "ALTER TABLE t DROP COLUMN made",
    "ALTER TABLE t ADD COLUMN tags VARCHAR[]",
    "UPDATE t SET tags = ['a', 'b'] WHERE id < 4",
    "COMMENT ON TABLE t IS 'it''s \\ é'",
    "COMMENT ON COLUMN t.title IS 'a title'",
    "ALTER TABLE t SET PARTITIONED BY (id)",
    "INSERT INTO t (id) SELECT range FROM range(600, 604)",
    "ALTER TABLE t SET SORTED BY (id DESC)",
    "COMMENT ON TABLE t IS NULL",
    "ALTER TABLE t RENAME TO renamed",
    "ALTER TABLE renamed RENAME TO t",
    "CREATE VIEW cheap AS SELECT id FROM t WHERE price < 3",
    "DELETE FROM t WHERE id IN (FROM cheap)",
    "CREATE SCHEMA s",
    'CREATE TABLE s."a ""b" AS SELECT 1 AS "c d", {\'x\': [1, 2]} AS deep',
    'UPDATE s."a ""b" SET "c d" = 2',
    "CREATE OR REPLACE TABLE news AS SELECT 'replaced' AS only",
    "DROP TABLE IF EXISTS nothing",
    "DROP TABLE news",
    "TRUNCATE t",
    "INSERT INTO t (id) VALUES (1)",
    "DELETE FROM t",
]
# Statements that fail, and leave the lake as it was.
FAILING = [
    "INSERT INTO t (nothing) VALUES (1)",
    "INSERT INTO t VALUES ('no number', 'a')",
    "UPDATE t SET id = 1 / 0 || 'x'",
    "INSERT INTO nowhere VALUES (1)",
    "CREATE TABLE t (i INTEGER)",
    "ALTER TABLE t RENAME COLUMN nothing TO something",
    "DROP TABLE nowhere",
    "MERGE INTO t USING t AS s ON t.id = s.id WHEN MATCHED AND s.id = 1 THEN DELETE"
    " WHEN MATCHED THEN UPDATE SET name = ''",
]


@dataclass(frozen=True)
class Pair:
    """The same lake on two catalogs."""

    sqlite: DuckLake
    mysql: DuckLake

    def run(self, commands: Any, **options: Any) -> ExecuteResult:
        """Run commands on both, compare all that `execute` returns, and return the result of MySQL."""
        results = [lake.execute(commands, **options) for lake in (self.sqlite, self.mysql)]
        for expected, command in zip(*(result.commands for result in results), strict=True):
            assert outcome(expected) == outcome(command), command.sql
        assert results[0].commands[-1].snapshot_after == results[1].commands[-1].snapshot_after
        return results[1]

    def compare(self) -> None:
        """Compare all tables, their definitions and their change feeds."""
        names = [sorted((table.schema, table.table) for table in lake.tables()) for lake in (self.sqlite, self.mysql)]
        assert names[0] == names[1]
        for schema, table in names[0]:
            quoted = f'{schema}."{table.replace(chr(34), chr(34) * 2)}"'
            states = [state(lake, quoted) for lake in (self.sqlite, self.mysql)]
            assert states[0] == states[1]


@pytest.fixture
def pair(servers: Servers, tmp_path: Path) -> Iterator[Pair]:
    lakes = []
    for kind in (SQLITE, MYSQL):
        catalog: Any = catalog_fields(kind, servers, tmp_path, kind.name)
        storage, common = tmp_path / f"{kind.name}.files", {"create_if_missing": True, "data_inlining_row_limit": 0}
        lakes.append(DuckLake.from_url("lake", catalog=catalog, storage=str(storage), **common))
    yield Pair(*lakes)
    servers.get(MariaDBServer).drop_database(catalog["url"].rpartition("/")[2])


def outcome(command: CommandResult) -> Any:
    shown = command.status, command.kind, command.affected_rows, command.rows, command.columns
    # On SQLite, a command in a transaction of its script has the snapshot that the script committed last.
    return *shown, type(command.error), command.snapshot_before


def state(lake: DuckLake, table: str) -> Any:
    columns = [(one.name, one.type, one.default, one.comment, one.partition) for one in lake.table(table).schema()]
    rows = lake.execute(f"FROM {table} ORDER BY ALL", max_rows=None).raise_for_error().rows
    history = [snapshot.snapshot_id for snapshot in lake.table(table).history()]
    return columns, rows, lake.read(table).num_rows, history


def feed(lake: DuckLake, table: str, start: int) -> list[Any]:
    changes = lake.changes(table, start, lake.snapshots(limit=1)[0].snapshot_id).to_pylist()
    # A row that a transaction adds and updates can have another id.
    left_out = ("snapshot_time", "author", "idempotency_key", "rowid")
    return sorted(str({name: value for name, value in row.items() if name not in left_out}) for row in changes)


def files(lake: DuckLake) -> set[Path]:
    return set(Path(str(lake.config.data_path)).rglob("*.parquet"))


def test_statements_do_the_same_as_on_sqlite(pair: Pair) -> None:
    for number, statement in enumerate(STATEMENTS):
        pair.run(statement).raise_for_error()
        if number % 5 == 4 or statement.startswith("DROP"):
            pair.compare()
    report = pair.mysql.fsck(deep=True, storage=True)
    assert report.findings == [], str(report)
    assert report.checked["files_read"] > 20


def test_statements_that_fail_leave_nothing_behind(pair: Pair) -> None:
    pair.run("CREATE TABLE t (id INTEGER NOT NULL, name VARCHAR); INSERT INTO t VALUES (1, 'a')").raise_for_error()
    before = files(pair.mysql)
    for statement in FAILING:
        assert not pair.run(statement)
    pair.compare()
    assert files(pair.mysql) == before


def test_scripts_and_transactions_do_the_same_as_on_sqlite(pair: Pair) -> None:
    pair.run("CREATE TABLE t (id INTEGER, name VARCHAR); CREATE TABLE u AS SELECT 1 AS id").raise_for_error()
    change = [
        "INSERT INTO t SELECT range, 'a' FROM range(10)",
        "UPDATE t SET name = 'b' WHERE id % 2 = 0",
        "SELECT count(*) AS n, count(*) FILTER (name = 'b') AS b FROM t",
        "INSERT INTO u SELECT id + 100 FROM t WHERE name = 'b'",
        "DELETE FROM t WHERE id = 4",
        "CREATE TABLE v AS FROM u",
    ]
    info = CommitInfo(author="me", message="several tables")
    assert pair.run(change, atomic=True, commit=info).raise_for_error().commands[2].rows == [{"n": 10, "b": 5}]
    pair.compare()
    newest = pair.mysql.snapshots(limit=1)[0]
    assert (newest.author, newest.message) == ("me", "several tables")
    pair.run(["BEGIN", *change[:-1], "ROLLBACK", "FROM t"]).raise_for_error()
    pair.run(["BEGIN", *change[:-1], "DROP TABLE v", "COMMIT", "SELECT count(*) FROM t"]).raise_for_error()
    pair.compare()
    pair.run(["BEGIN", *change, "INSERT INTO nowhere VALUES (1)", "COMMIT"])
    pair.run(
        ["BEGIN", "DELETE FROM t", "INSERT INTO nowhere VALUES (1)", "COMMIT", "FROM u ORDER BY ALL"],
        on_error="continue",
    )
    pair.run(["BEGIN", *change[:2]])  # left open
    pair.run([*change[:2], "INSERT INTO nowhere VALUES (1)"], atomic=True)
    pair.run(
        ["INSERT INTO t VALUES ($id, $name)", "UPDATE t SET id = 7 WHERE name = $name"], params={"id": 5, "name": "p"}
    )
    pair.run("INSERT INTO t VALUES (?, ?)", params=[6, "?"])
    pair.compare()
    for first in (2, 4):
        assert feed(pair.sqlite, "t", first) == feed(pair.mysql, "t", first)
    assert pair.mysql.fsck(deep=True, storage=True).findings == []


def test_a_script_keeps_its_temporary_tables_settings_and_variables(pair: Pair) -> None:
    script = """
        CREATE TABLE t (id INTEGER, name VARCHAR);
        CREATE TEMP TABLE new AS SELECT 1 AS id, 'a' AS name;
        SET VARIABLE least = 5;
        INSERT INTO t FROM new;
        INSERT INTO new SELECT id + 10, name FROM t;
        PREPARE more AS INSERT INTO t VALUES ($1, 'prepared');
        EXECUTE more(6);
        BEGIN;
        UPDATE t SET id = id + 10 WHERE id > getvariable('least');
        INSERT INTO t FROM new;
        COMMIT;
        CREATE SCHEMA s;
        USE lake.s;
        CREATE TABLE here (i INTEGER);
        INSERT INTO here SELECT count(*) FROM main.t;
        FROM main.t ORDER BY ALL;
    """
    result = pair.run(script).raise_for_error()
    assert [row["id"] for row in result.rows] == [1, 1, 11, 16]
    pair.compare()


REFUSED = {
    "INSERT INTO t SELECT * FROM t AT (VERSION => 1)": "CREATE TEMP TABLE past",
    "INSERT INTO t SELECT id FROM table_changes('t', 0, 1)": "CREATE TEMP TABLE past",
    "COMMENT ON VIEW w IS 'a view'": "tables and columns only",
    "BEGIN; CREATE VIEW x AS FROM t; INSERT INTO t VALUES (2); COMMIT": "command of its own",
    "BEGIN; CREATE SCHEMA empty; INSERT INTO t VALUES (2); COMMIT": "command of its own",
    "BEGIN; ALTER TABLE t RENAME TO r; INSERT INTO r VALUES (2); COMMIT": "command of its own",
    "BEGIN; DROP TABLE t; CREATE TABLE t AS SELECT 2 AS id; COMMIT": "command of its own",
    "BEGIN; INSERT INTO t VALUES (2); CALL lake.set_commit_message('me', 'text'); COMMIT": "CommitInfo",
    "BEGIN; INSERT INTO t VALUES (2); SELECT * FROM ducklake_snapshots('lake'); COMMIT": "CREATE TEMP TABLE past",
    "BEGIN; INSERT INTO t VALUES (2); CALL lake.set_option('parquet_version', 2); COMMIT": "command of its own",
    "BEGIN; INSERT INTO t VALUES (2); CHECKPOINT; COMMIT": "command of its own",
    "PREPARE p AS SELECT * FROM ducklake_delete_orphaned_files('lake', cleanup_all => true); EXECUTE p": "directly",
    "INSERT INTO huge VALUES (170141183460469231731687303715884105727)": "DECIMAL",
    "INSERT INTO times VALUES (INTERVAL 1 MICROSECOND)": "lake.write",
}


def test_what_cannot_be_committed_is_refused_before_anything_is_done(pair: Pair) -> None:
    lake = pair.mysql
    tables = "CREATE TABLE t AS SELECT 1 AS id; CREATE TABLE huge (i HUGEINT); CREATE TABLE times (i INTERVAL)"
    lake.execute(f"{tables}; CREATE VIEW w AS FROM t").raise_for_error()
    before, snapshot = files(lake), lake.snapshots(limit=1)[0].snapshot_id
    for script, remedy in REFUSED.items():
        error = lake.execute(script, on_error="continue").commands
        failures = [command.error for command in error if command.error is not None]
        assert failures, script
        assert isinstance(failures[0], errors.UnsupportedStatementError | errors.DataError), script
        assert remedy in str(failures[0]), script
        assert (files(lake), lake.snapshots(limit=1)[0].snapshot_id) == (before, snapshot), script
    lake.execute(["CREATE TEMP TABLE past AS FROM t AT (VERSION => 1)", "INSERT INTO t FROM past"]).raise_for_error()
    lake.execute(["BEGIN", "CREATE SCHEMA s", "CREATE VIEW s.v AS FROM t", "COMMIT"]).raise_for_error()
    lake.execute(["CREATE SCHEMA z", "CREATE TABLE z.t AS SELECT 2 AS id"], atomic=True).raise_for_error()
    lake.execute("CREATE TABLE snapshots (at_ INTEGER); INSERT INTO snapshots (at_) VALUES (1)").raise_for_error()
    lake.execute("INSERT INTO huge VALUES (9007199254740992); INSERT INTO times VALUES (NULL)").raise_for_error()
    assert lake.execute("SELECT sum(id) AS n FROM (FROM s.v UNION ALL FROM z.t)").rows == [{"n": 4}]


def test_a_killed_process_leaves_the_lake_before_or_after_the_statement(pair: Pair) -> None:
    lake = pair.mysql
    lake.execute("CREATE TABLE t AS SELECT range AS id, 0 AS n FROM range(10)").raise_for_error()
    for number, point in enumerate(["files.written", "commit.before", "commit.after"], 1):
        statement = f"UPDATE t SET n = {number} WHERE id < 5"
        assert dies_at(point, lambda: lake.execute(statement))  # noqa: B023
        done = point == "commit.after"
        assert lake.execute(f"SELECT count(*) AS n FROM t WHERE n = {number}").rows == [{"n": 5 if done else 0}]
        assert lake.execute(statement).raise_for_error().commands[0].affected_rows == 5
    assert [finding for finding in lake.fsck(deep=True).findings if finding.severity != "info"] == []


def test_concurrent_statements_count_up_without_a_gap(pair: Pair) -> None:
    pair.mysql.execute("CREATE TABLE t AS SELECT 0 AS id").raise_for_error()
    with ThreadPoolExecutor(3) as pool:
        results = pool.map(lambda _: pair.mysql.execute("INSERT INTO t SELECT max(id) + 1 FROM t"), range(6))
        assert all(results)
    assert pair.mysql.execute("SELECT id FROM t ORDER BY id").rows == [{"id": number} for number in range(7)]


def test_options_of_the_lake_and_of_the_table_hold(pair: Pair) -> None:
    lake = pair.mysql
    lake.create_table("t", {"id": "BIGINT", "day": "DATE"}, partition_by=["day"], sort_by=["id"])
    lake.set_option("data_inlining_row_limit", 1000, table="t")
    lake.set_option("parquet_compression", "zstd")
    lake.execute(
        "INSERT INTO t SELECT 100 - range, DATE '2024-01-01' + (range % 2)::INTEGER FROM range(50)"
    ).raise_for_error()
    assert [file.rows for file in lake.table("t").files()] == [25, 25]
    found = duckdb.sql(f"SELECT DISTINCT compression FROM parquet_metadata({sorted(map(str, files(lake)))})").fetchall()
    assert found == [("ZSTD",)]
    assert lake.table("t").stats().inlined_rows == 0


def test_rows_that_another_program_inlined_are_changed(pair: Pair) -> None:
    lake = DuckLake(pair.mysql.config.model_copy(update={"data_inlining_row_limit": 10}))
    with lake.connect() as con:  # the extension, as in another program
        con.execute("CREATE TABLE t (id INTEGER, name VARCHAR, d DATE)")
        con.execute("INSERT INTO t VALUES (1, 'a''\\', '2024-01-01'), (2, NULL, NULL), (3, 'c', '2024-01-03')")
    assert lake.table("t").stats().inlined_rows == 3
    lake.execute("UPDATE t SET name = name || '!' WHERE id = 1; DELETE FROM t WHERE id = 2").raise_for_error()
    lake.execute("INSERT INTO t SELECT id + 10, name, d FROM t WHERE id = 3").raise_for_error()
    rows = lake.execute("SELECT id, name, d::VARCHAR AS d FROM t ORDER BY id").rows
    assert [tuple(row.values()) for row in rows] == [
        (1, "a'\\!", "2024-01-01"),
        (3, "c", "2024-01-03"),
        (13, "c", "2024-01-03"),
    ]
    assert lake.execute("SELECT count(*) AS n FROM t AT (VERSION => 2)").rows == [{"n": 3}]
    assert lake.fsck(deep=True, storage=True).findings == []


def test_an_encrypted_lake_with_one_connection_and_a_lake_named_like_its_schema(
    servers: Servers, tmp_path: Path
) -> None:
    catalog: Any = catalog_fields(MYSQL, servers, tmp_path, "shop")
    lake = DuckLake.from_url(
        "shop",
        catalog=catalog,
        storage=str(tmp_path / "files"),
        create_if_missing=True,
        encrypted=True,
        pool={"size": 1},
    )
    lake.execute("CREATE SCHEMA shop; CREATE TABLE shop.t AS SELECT 1 AS id, 'secret' AS name").raise_for_error()
    with ThreadPoolExecutor(3) as pool:
        change = "UPDATE shop.t SET id = id + 1 WHERE name = 'secret'"
        assert all(pool.map(lambda _: lake.execute(change), range(4)))
    lake.execute(
        "BEGIN; INSERT INTO shop.shop.t VALUES (9, 'more'); DELETE FROM shop.t WHERE id = 0; COMMIT"
    ).raise_for_error()
    assert lake.execute("SELECT id FROM shop.t ORDER BY id").rows == [{"id": 5}, {"id": 9}]
    assert not any(b"secret" in file.read_bytes() for file in files(lake))
    assert lake.fsck(deep=True, storage=True).findings == []
    servers.get(MariaDBServer).drop_database(catalog["url"].rpartition("/")[2])


def test_tables_are_found_however_a_statement_names_them(pair: Pair) -> None:
    """Names after an odd number of quotes, in macros, and in views of the same name in two schemas."""
    script = [
        "CREATE TABLE t AS SELECT 1 AS id, '6\"' AS b",
        "CREATE TABLE u AS SELECT 2 AS id",
        'CREATE TABLE "a table" AS SELECT 3 AS id',
        "CREATE SCHEMA a",
        "CREATE TABLE a.ta AS SELECT 4 AS id",
        "CREATE TABLE ub AS SELECT 5 AS id",
        "CREATE VIEW a.v AS FROM lake.a.ta",
        "CREATE VIEW v AS FROM ub",
        "CREATE MACRO plus1(x) AS x + 1",
        "CREATE MACRO ids() AS TABLE SELECT id FROM u",
        "CREATE TABLE x (id INTEGER)",
        "INSERT INTO x SELECT id FROM t WHERE b = '6\"' UNION ALL SELECT id FROM u WHERE '\"' = '\"'",
        'INSERT INTO x /* 5" pipe */ SELECT id FROM "a table"',
        "INSERT INTO x FROM a.v",
        "INSERT INTO x FROM v",
        "INSERT INTO x SELECT plus1(10)",
        "INSERT INTO x FROM ids()",
        '/* " */ DROP TABLE IF EXISTS u /* " */',
    ]
    for lake in (pair.mysql, pair.sqlite):
        for sql in script:
            lake.execute(sql.replace("lake.a", f"{lake.config.alias}.a")).raise_for_error()
        assert [row["id"] for row in lake.execute("SELECT id FROM x ORDER BY id").rows] == [1, 2, 2, 3, 4, 5, 11]
        assert "u" not in {table.table for table in lake.tables()}


@pytest.mark.parametrize(
    "query",
    [
        "SELECT table_name FROM information_schema.tables",
        "SELECT table_name FROM duckdb_tables()",
        "SELECT name FROM (SHOW ALL TABLES)",
    ],
)
def test_lists_of_tables_are_refused_in_a_statement_that_changes_tables(pair: Pair, query: str) -> None:
    with pytest.raises(errors.UnsupportedStatementError, match="lists no tables"):
        pair.mysql.execute(f"CREATE TABLE inv AS {query}").raise_for_error()
    assert pair.mysql.tables() == []


def test_the_option_for_deletion_vectors_changes_no_statement(pair: Pair) -> None:
    lake = pair.mysql
    lake.execute("CREATE TABLE t AS SELECT range AS id FROM range(20)").raise_for_error()
    with lake.connect() as con:
        con.execute(f"CALL ducklake_set_option('{lake.config.alias}', 'write_deletion_vectors', true)")
    lake.execute("DELETE FROM t WHERE id < 5; UPDATE t SET id = 100 WHERE id = 7").raise_for_error()
    assert sorted(lake.read("t").column("id").to_pylist()) == [5, 6, *range(8, 20), 100]
