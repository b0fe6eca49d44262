"""The methods of common.sql's `DbApiHook`, as the table in docs/airflow-sql.md lists them."""

from pathlib import Path
from typing import Any

import pandas
import polars
import pyarrow as pa
import pytest
from airflow.models import Connection
from airflow.providers.common.sql.hooks.handlers import fetch_all_handler, fetch_one_handler
from airflow.providers.common.sql.operators.generic_transfer import GenericTransfer
from airflow.providers.common.sql.operators.sql import (
    SQLCheckOperator,
    SQLExecuteQueryOperator,
    SQLInsertRowsOperator,
    SQLTableCheckOperator,
)
from airflow.sdk import DAG

from ducklake_orch.airflow import DuckLakeHook
from ducklake_orch.errors import ConfigError, ObjectNotFoundError, UnsupportedStatementError
from tests.support.airflow_connections import Connect
from tests.support.airflow_runs import run, states
from tests.support.backends import LOCAL, MYSQL, POSTGRES, Backend
from tests.support.lakes import MakeLake


@pytest.fixture
def hook(conn_id: str) -> DuckLakeHook:
    """A hook on a lake with the tables `main.t` and `sales.t`, which differ."""
    hook = DuckLakeHook()
    hook.run(
        "CREATE SCHEMA sales; CREATE TABLE sales.t AS SELECT 7 AS a, 'sales' AS b;"
        " CREATE TABLE t (a INTEGER, b VARCHAR, d DATE);"
        " INSERT INTO t VALUES (1, 'x', '2024-01-01'), (2, NULL, NULL), (3, 'z', '2024-01-03')"
    )
    return hook


# --- schema and database --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("argument", ["schema", "database"])
def test_unqualified_names_are_of_the_hooks_schema(hook: DuckLakeHook, argument: str) -> None:
    sales = DuckLakeHook(**{argument: "sales"})
    assert sales.get_records("FROM t") == [(7, "sales")]
    assert list(sales.get_df("FROM t")["a"]) == [7]
    sales.insert_rows("t", [(8, "new")])
    sales.insert_rows("t", [(8, "replaced")], replace=True, replace_index="a")
    sales.run(["CREATE TABLE made (a BIGINT)", "INSERT INTO made VALUES (1)"], autocommit=True)
    assert hook.get_records("FROM sales.t ORDER BY a") == [(7, "sales"), (8, "replaced")]
    assert hook.get_records("FROM sales.made") == [(1,)]
    assert sales.read("made").to_pylist() == [{"a": 1}]
    assert sales.write(pa.table({"a": [2]}), "made", mode="append").table == "sales.made"
    with pytest.raises(ConfigError, match="no default schema"):
        sales.execute("FROM made")
    assert hook.get_first("SELECT count(*) FROM t") == (3,)  # the next hook is in `main` again


@pytest.mark.parametrize("backend", [Backend(POSTGRES, LOCAL), Backend(MYSQL, LOCAL)], indirect=True, ids=str)
def test_a_catalog_on_a_server_keeps_schemas_apart(connect: Connect, make_lake: MakeLake, backend: Backend) -> None:
    config = make_lake().config
    catalog = {"url": config.catalog.to_url(reveal=True)}
    connect(extra={"catalog": catalog, "storage": str(config.data_path), "create_if_missing": True})
    hook, sales = DuckLakeHook(), DuckLakeHook(database="sales")
    hook.run("CREATE SCHEMA sales; CREATE TABLE sales.t (a BIGINT); CREATE TABLE t AS SELECT range AS a FROM range(9)")
    for chunk in hook.get_df_by_chunks("FROM t ORDER BY a", chunksize=6):
        sales.insert_rows("t", chunk.itertuples(index=False), replace=True, replace_index="a")
    assert (sales.get_first("SELECT count(*), sum(a) FROM t"), hook.get_first("SELECT count(*) FROM t")) == (
        (9, 36),
        (9,),
    )
    assert sales.inspector.get_table_names() == ["t"]


@pytest.mark.parametrize("backend", [Backend(MYSQL, LOCAL)], indirect=True, ids=str)
def test_a_hook_changes_tables_of_a_mysql_lake(connect: Connect, make_lake: MakeLake, backend: Backend) -> None:
    lake = make_lake()
    catalog = {"url": lake.config.catalog.to_url(reveal=True)}
    connect(extra={"catalog": catalog, "storage": str(lake.config.data_path), "create_if_missing": True})
    hook = DuckLakeHook()
    hook.run("CREATE TABLE t (a BIGINT, b VARCHAR)")
    hook.run("INSERT INTO t VALUES (1, 'a'), (2, 'b')", autocommit=True)
    hook.run(["UPDATE t SET b = 'x' WHERE a = 1", "INSERT INTO t SELECT a + 10, b FROM t", "DELETE FROM t WHERE a = 2"])
    assert hook.get_records("FROM t ORDER BY a") == [(1, "x"), (11, "x"), (12, "b")]
    assert [snapshot.snapshot_id for snapshot in lake.table("t").history()] == [3, 2, 1]
    hook.run("CREATE VIEW v AS FROM t")  # in a transaction of its own, which the extension runs
    hook.run("CALL ducklake_set_option('ducklake_default', 'parquet_version', 2)")
    with hook.get_conn() as connection:
        cursor = connection.cursor()
        cursor.execute("UPDATE t SET a = a + 1 WHERE a > 10")
        assert cursor.rowcount == 2
        connection.rollback()
    with pytest.raises(UnsupportedStatementError, match="command of its own"):
        hook.run("INSERT INTO t VALUES (9, 'i'); CREATE VIEW w AS FROM t")
    assert hook.get_records("SELECT a FROM v ORDER BY a") == [(1,), (11,), (12,)]


def test_a_connection_that_opens_again_stays_in_its_schema(hook: DuckLakeHook) -> None:
    with DuckLakeHook(schema="sales").get_conn() as connection:
        connection.autocommit = True
        connection.run("INSERT INTO t VALUES (8, 'a')", None)
        connection._session.broken = True  # as after a lost answer of the catalog
        connection.run("INSERT INTO t VALUES (9, 'b')", None)
    assert hook.get_records("SELECT a FROM sales.t ORDER BY a") == [(7,), (8,), (9,)]


def test_a_schema_that_does_not_exist_is_an_error(hook: DuckLakeHook) -> None:
    with pytest.raises(ObjectNotFoundError, match="nowhere"):
        DuckLakeHook(schema="nowhere").get_records("FROM t")
    with pytest.raises(ConfigError, match="name two schemas"):
        DuckLakeHook(schema="sales", database="main")


def test_operators_take_database_as_the_schema(hook: DuckLakeHook, conn_id: str) -> None:
    with DAG("databases") as dag:
        query = SQLExecuteQueryOperator(task_id="query", conn_id=conn_id, database="sales", sql="SELECT b FROM t")
        check = SQLTableCheckOperator(
            task_id="check",
            conn_id=conn_id,
            database="sales",
            table="t",
            checks={"one": {"check_statement": "count(*) = 1"}},
        )
        params = SQLCheckOperator(
            task_id="params", conn_id=conn_id, hook_params={"schema": "sales"}, sql="SELECT b = 'sales' FROM t"
        )
        query >> check >> params
    assert set(states(run(dag)).values()) == {"success"}


def test_operators_accept_every_key_of_the_connections_extra(connect: Connect, tmp_path: Path) -> None:
    catalog = {"type": "sqlite", "path": str(tmp_path / "catalog.sqlite")}
    extra = {
        "catalog": catalog,
        "storage__type": "local",
        "storage__path": str(tmp_path / "files"),
        "spark_master": "local[1]",
    }
    conn_id = connect(extra={**extra, "create_if_missing": True, "placeholder": "?"})
    operator = SQLExecuteQueryOperator(task_id="query", conn_id=conn_id, sql="SELECT 1")
    assert operator.get_db_hook().get_first("SELECT 1") == (1,)


# --- statements and results -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "arguments", "expected", "descriptions"),
    [
        ("SELECT 1 AS a", {}, [(1,)], [["a"]]),
        ("SELECT 1 AS a; SELECT 2 AS b", {"split_statements": True}, [(2,)], [["b"]]),
        (
            "SELECT 1 AS a; SELECT 2 AS b",
            {"split_statements": True, "return_last": False},
            [[(1,)], [(2,)]],
            [["a"], ["b"]],
        ),
        ("SELECT 1 AS a; SELECT 2 AS b", {"return_last": False}, [(2,)], [["b"]]),
        (["SELECT 1 AS a", "SELECT 2 AS b"], {}, [[(1,)], [(2,)]], [["a"], ["b"]]),
        ("SELECT $$a;b$$ AS a; SELECT 2", {"split_statements": True, "return_last": False}, [[("a;b",)], [(2,)]], None),
    ],
)
def test_run_returns_results_and_descriptions(
    hook: DuckLakeHook, sql: Any, arguments: dict[str, Any], expected: Any, descriptions: Any
) -> None:
    assert hook.run(sql, handler=fetch_all_handler, **arguments) == expected
    if descriptions is not None:
        assert [[name for name, *_ in columns or []] for columns in hook.descriptions] == descriptions
        assert hook.last_description == hook.descriptions[-1]


def test_a_run_without_a_handler_returns_nothing(hook: DuckLakeHook) -> None:
    assert hook.run("SELECT 1") is None
    assert hook.run("SELECT 1", handler=fetch_one_handler) == (1,)
    with pytest.raises(ValueError, match="empty"):
        hook.run("")


@pytest.mark.parametrize(
    ("statement", "count"),
    [
        ("INSERT INTO t (a) VALUES (4), (5)", 2),
        ("UPDATE t SET b = 'y' WHERE a > 1", 2),
        ("DELETE FROM t WHERE a = 9", 0),
        ("MERGE INTO t USING (SELECT 1 AS a) s ON t.a = s.a WHEN MATCHED THEN UPDATE SET b = 'm'", 1),
        ("CREATE TABLE u AS FROM t", 3),
        ("DROP TABLE t", -1),
        ("SET threads = 2", -1),
    ],
)
@pytest.mark.parametrize("autocommit", [True, False])
def test_a_statement_without_rows_tells_how_many_it_changed(
    hook: DuckLakeHook, statement: str, count: int, autocommit: bool
) -> None:
    found = hook.run(
        statement,
        autocommit=autocommit,
        handler=lambda cursor: (cursor.rowcount, cursor.description, cursor.fetchall()),
    )
    assert found == (count, None, [])


def test_executemany_counts_the_rows_of_all_statements(hook: DuckLakeHook) -> None:
    with hook.get_conn() as connection:
        cursor = connection.cursor().executemany("INSERT INTO t (a) VALUES (?)", [(5,), (6,)])
        assert cursor.rowcount == 2
        connection.commit()
    assert hook.get_first("SELECT count(*) FROM t") == (5,)


def test_secrets_of_statements_stay_out_of_lineage(hook: DuckLakeHook, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr("ducklake_orch.airflow.sql_hook.send_sql_hook_lineage", lambda **given: sent.append(given))
    hook.run(["SET VARIABLE password = 'canary'", "UPDATE t SET b = '' WHERE a = 1"])
    hook.insert_rows("t", [(9, "canary", None)])
    assert "canary" not in str([given["sql"] for given in sent])
    assert sent[1]["cur"].rowcount == 1
    assert (sent[2]["sql"], sent[2]["row_count"]) == ("INSERT INTO t VALUES (?, ?, ?)", 1)


def test_the_cursor_of_the_hook_runs_statements(hook: DuckLakeHook) -> None:
    with hook.get_cursor().connection as connection:
        assert connection.cursor().execute("SELECT count(*) FROM t").fetchone() == (3,)
        hook.set_autocommit(connection, True)
        assert hook.get_autocommit(connection)


# --- frames ---------------------------------------------------------------------------------------------------------


def test_arguments_of_get_df_are_those_of_pandas_and_polars(hook: DuckLakeHook) -> None:
    sql = "SELECT a, b, d::VARCHAR AS d FROM t ORDER BY a"
    frame = hook.get_df(sql, index_col="a", parse_dates=["d"], dtype={"b": "string"})
    assert (frame.index.name, str(frame.dtypes["b"]), frame.dtypes["d"].kind) == ("a", "string", "M")
    assert str(hook.get_df(sql, dtype_backend="numpy_nullable").dtypes["a"]) == "Int64"
    overridden = hook.get_df(sql, df_type="polars", schema_overrides={"a": polars.Int8})
    assert overridden.schema["a"] == polars.Int8
    (chunk,) = hook.get_df_by_chunks(sql, chunksize=5, index_col="a")
    assert list(chunk.index) == [1, 2, 3]
    chunks = hook.get_df_by_chunks(sql, chunksize=2, df_type="polars", schema_overrides={"a": polars.Int8})
    assert [list(chunk["a"]) for chunk in chunks] == [[1, 2], [3]]


@pytest.mark.parametrize("df_type", ["pandas", "polars"])
@pytest.mark.parametrize("options", [False, True])
def test_queries_of_frames_have_parameters(hook: DuckLakeHook, df_type: Any, options: bool) -> None:
    more: dict[str, Any] = (
        {} if not options else {"index_col": None} if df_type == "pandas" else {"schema_overrides": {}}
    )
    assert list(hook.get_df("SELECT a FROM t WHERE a > ?", [2], df_type=df_type, **more)["a"]) == [3]
    assert list(
        hook.get_df(["SET threads = 2", "SELECT a FROM t WHERE a < $n"], {"n": 2}, df_type=df_type, **more)["a"]
    ) == [1]
    chunks = hook.get_df_by_chunks("SELECT a FROM t WHERE a > $n", {"n": 1}, chunksize=9, df_type=df_type, **more)
    assert [list(chunk["a"]) for chunk in chunks] == [[2, 3]]


@pytest.mark.parametrize("df_type", ["pandas", "polars"])
def test_chunks_have_the_size_that_is_asked_for(hook: DuckLakeHook, df_type: Any) -> None:
    sql = "SELECT range AS a, range::VARCHAR AS b FROM range(10_000)"
    chunks = list(hook.get_df_by_chunks(sql, chunksize=3000, df_type=df_type))
    assert [len(chunk) for chunk in chunks] == [3000, 3000, 3000, 1000]
    assert [n for chunk in chunks for n in chunk["a"]] == list(range(10_000))
    (nothing,) = hook.get_df_by_chunks("SELECT a FROM t WHERE false", chunksize=2, df_type=df_type)
    assert (len(nothing), list(nothing.columns)) == (0, ["a"])


@pytest.mark.parametrize("catalog", ["sqlite", "duckdb"])
@pytest.mark.parametrize("options", [{}, {"coerce_float": False}])
def test_rows_can_be_written_while_chunks_are_read(
    connect: Connect, tmp_path: Path, catalog: str, options: dict[str, Any]
) -> None:
    where = {"type": catalog, "path": str(tmp_path / f"catalog.{catalog}")}
    connect(
        extra={"catalog": where, "storage": str(tmp_path / "files"), "create_if_missing": True, "lock_timeout": "2s"}
    )
    hook = DuckLakeHook()
    hook.run("CREATE TABLE t AS SELECT range AS a FROM range(5000); CREATE TABLE u (a BIGINT)")
    for chunk in hook.get_df_by_chunks("FROM t", chunksize=2500, **options):
        hook.insert_rows("u", chunk.head(1).itertuples(index=False))
    assert hook.get_first("SELECT count(*) FROM u") == (2,)


def test_errors_of_frames_keep_their_class(hook: DuckLakeHook) -> None:
    with pytest.raises(ObjectNotFoundError):
        hook.get_df("FROM nowhere", coerce_float=False)
    with pytest.raises(UnsupportedStatementError, match="no rows"):
        hook.get_df("UPDATE t SET b = ''")
    with pytest.raises(ConfigError, match="Did you mean `index_col`"):
        hook.get_df("SELECT 1", index_cols="a")
    assert isinstance(hook.get_pandas_df("SELECT 1 AS a"), pandas.DataFrame)


# --- tables ---------------------------------------------------------------------------------------------------------


def test_the_inspector_lists_schemas_tables_and_columns(hook: DuckLakeHook) -> None:
    inspector = hook.inspector
    assert {"main", "sales"} <= set(inspector.get_schema_names())
    assert (inspector.get_table_names(), inspector.get_table_names("sales")) == (["t"], ["t"])
    assert (inspector.has_table("t", "sales"), inspector.has_table("u")) == (True, False)
    assert [column["name"] for column in inspector.get_columns("t")] == ["a", "b", "d"]
    assert inspector.get_pk_constraint("t")["constrained_columns"] == []
    assert DuckLakeHook(schema="sales").get_table_schema("t") == [
        {"name": "a", "type": "INTEGER"},
        {"name": "b", "type": "VARCHAR"},
    ]


def test_the_dialect_knows_names_and_reserved_words(hook: DuckLakeHook) -> None:
    dialect = hook.dialect
    assert dialect.get_column_names('sales."t"') == ["a", "b"]
    assert dialect.get_target_fields("t") == ["a", "b", "d"]
    assert dialect.get_primary_keys("t") == []
    assert (dialect.escape_word("order"), dialect.escape_word("a b"), dialect.escape_word("a")) == (
        '"order"',
        '"a b"',
        "a",
    )
    insert = dialect.generate_insert_sql("t", (4, "w"), ["a", "b"])
    hook.run(insert, parameters=(4, "w"))
    assert hook.get_records("SELECT a, b FROM t WHERE a = 4") == [(4, "w")]
    with pytest.raises(UnsupportedStatementError, match="replaces rows"):
        dialect.generate_replace_sql("t", (4, "v"), ["a", "b"])


def test_sqlalchemy_has_no_dialect_for_a_lake(hook: DuckLakeHook) -> None:
    with pytest.raises(NotImplementedError, match="SQLAlchemy"):
        _ = hook.sqlalchemy_url
    assert hook.get_sqlalchemy_engine() is None


def test_the_uri_is_that_of_the_connection(hook: DuckLakeHook) -> None:
    sales = DuckLakeHook(schema="sales")
    assert (sales.get_uri(), sales.get_openlineage_default_schema()) == (hook.get_uri(), "sales")
    assert hook.get_uri().startswith("ducklake://")


def test_a_connection_can_be_given_instead_of_its_id(hook: DuckLakeHook) -> None:
    copied = Connection(conn_id="other", conn_type="ducklake", extra=hook.connection.extra)
    assert DuckLakeHook(connection=copied).get_first("SELECT count(*) FROM t") == (3,)


@pytest.mark.parametrize(
    "argument", ["insert_statement_format", "replace_statement_format", "escape_word_format", "escape_column_names"]
)
def test_formats_of_statements_are_refused(conn_id: str, argument: str) -> None:
    with pytest.raises(ConfigError, match=f"takes no `{argument}`"):
        DuckLakeHook(**{argument: "x"})


def test_only_duckdbs_placeholder_is_accepted(connect: Connect, conn_id: str) -> None:
    extra = {"catalog": "sqlite:////nowhere.sqlite", "storage": "/nowhere"}
    assert DuckLakeHook(connect(extra={**extra, "placeholder": "?"})).placeholder == "?"
    with pytest.raises(ConfigError, match=r"another `placeholder` than `\?`"):
        DuckLakeHook(connect(extra={**extra, "placeholder": "%s"})).lake()


# --- files and transfers --------------------------------------------------------------------------------------------


def test_bulk_files_hold_every_value(hook: DuckLakeHook, tmp_path: Path) -> None:
    values = ["tab\t", "line\nend", '"quoted"', "\\N", "", None, "ä"]
    hook.insert_rows("t", [(n, value, None) for n, value in enumerate(values, 10)])
    file = str(tmp_path / "dump's.tsv")
    hook.bulk_dump("t", file)
    hook.run("CREATE TABLE copied AS FROM t LIMIT 0")
    hook.bulk_load("copied", file)
    assert hook.get_records("FROM copied ORDER BY a") == hook.get_records("FROM t ORDER BY a")
    assert len(hook.get_records("FROM copied")) == 10


def test_rows_are_transferred_between_lakes(hook: DuckLakeHook, connect: Connect, tmp_path: Path) -> None:
    catalog = {"type": "sqlite", "path": str(tmp_path / "other.sqlite")}
    other = connect("other", extra={"catalog": catalog, "storage": str(tmp_path / "other"), "create_if_missing": True})
    with DAG("transfers") as dag:
        GenericTransfer(
            task_id="copy",
            source_conn_id="ducklake_default",
            destination_conn_id=other,
            sql="SELECT * FROM t ORDER BY a",
            destination_table="copied",
            preoperator="CREATE TABLE copied (a INTEGER, b VARCHAR, d DATE)",
            page_size=2,
            insert_args={"replace": True, "replace_index": ["a"]},
        )
    assert set(states(run(dag)).values()) == {"success"}
    assert DuckLakeHook(other).get_records("FROM copied ORDER BY a") == hook.get_records("FROM t ORDER BY a")


@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        ([(4, "w", "2024-02-01")], None),
        ([{"b": "w", "A": 4, "d": "2024-02-01"}], None),
        ([{"a": 4, "b": "w", "d": "2024-02-01", "ignored": 1}], ["d", "a", "b"]),
    ],
)
def test_rows_of_the_insert_operator_reach_the_columns(
    hook: DuckLakeHook, conn_id: str, rows: list[Any], columns: list[str] | None
) -> None:
    operator = SQLInsertRowsOperator(task_id="insert", conn_id=conn_id, table_name="t", columns=columns, rows=rows)
    operator.execute({})
    assert hook.get_records("SELECT a, b, d::VARCHAR FROM t WHERE a = 4") == [(4, "w", "2024-02-01")]


def test_snapshots_of_airflows_own_operators_name_the_task(hook: DuckLakeHook, conn_id: str) -> None:
    with DAG("authors") as dag:
        sql = SQLExecuteQueryOperator(task_id="sql", conn_id=conn_id, sql="INSERT INTO t (a) VALUES (4)")
        auto = SQLExecuteQueryOperator(
            task_id="auto", conn_id=conn_id, sql="DELETE FROM t WHERE a = 4", autocommit=True
        )
        rows = SQLInsertRowsOperator(task_id="rows", conn_id=conn_id, table_name="t", rows=[(5, "v", None)])
        sql >> auto >> rows
    done = run(dag)
    assert set(states(done).values()) == {"success"}
    for task_id, snapshot in zip(["rows", "auto", "sql"], hook.snapshots(limit=3), strict=True):
        assert (snapshot.author, snapshot.extra["airflow"]["task_id"]) == ("airflow", task_id)
        assert snapshot.message == f"SQL of task {task_id}, run {done.run_id}"
