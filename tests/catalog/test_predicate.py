"""Valid conditions, and the error messages of invalid ones."""

from collections.abc import Iterator
from contextlib import closing

import duckdb
import pytest

from ducklake_orch.catalog.metadata import ColumnDef
from ducklake_orch.catalog.scan import parse_predicate
from ducklake_orch.catalog.scan.predicate import parse_order
from ducklake_orch.errors import ObjectNotFoundError, StatementError

COLUMNS = (
    ColumnDef(1, "id", "int32", True),
    ColumnDef(2, "region", "varchar", True),
    ColumnDef(3, "values", "list", True, children=(ColumnDef(4, "element", "int32", True),)),
    ColumnDef(5, "inner", "struct", True, children=(ColumnDef(6, "a", "int32", True),)),
    ColumnDef(7, "done", "boolean", True),
    ColumnDef(8, "a b", "date", True),
)


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(duckdb.connect()) as connection:
        yield connection


@pytest.mark.parametrize(
    ("where", "columns"),
    [
        ("id = 1", ["id"]),
        ("ID = 1 AND Region LIKE 'e%'", ["id", "region"]),
        ("id = 1 -- the first", ["id"]),
        ("\"a b\" > DATE '2024-01-01' OR done", ["done", "a b"]),
        ('"inner".a = 1', ["inner"]),
        ('list_filter("values", lambda x: x > id)[1] = 2', ["id", "values"]),
        ('list_reduce("values", lambda x, y: x + y) > 1', ["values"]),
        ("true", []),
        ("CASE WHEN done THEN id = 1 ELSE region IS NULL END", ["id", "region", "done"]),
    ],
)
def test_the_columns_of_a_condition_are_listed(con: duckdb.DuckDBPyConnection, where: str, columns: list[str]) -> None:
    predicate = parse_predicate(con, where, COLUMNS)
    assert [column.name for column in predicate.columns] == columns


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("", "SELECT clause without"),
        ("id = ", "syntax error"),
        ("id = 1) OR (1 = 1", "syntax error"),
        ("id = 1; DROP TABLE t", "Only SELECT"),
        ("id = 1; SELECT 2", "more than one condition"),
        ("id = 1, done", "more than one condition"),
        ("id = 1 AS x", "more than one condition"),
        ("id = 1 FROM t", "more than one condition"),
        ("id = 1 WHERE done", "more than one condition"),
        ("id = 1 GROUP BY id", "more than one condition"),
        ("id = 1 LIMIT 1", "more than one condition"),
        ("id = 1 UNION SELECT true", "more than one condition"),
        ("id = (SELECT 1)", "a subquery"),
        ("EXISTS (FROM t)", "a subquery"),
        ("id IN (FROM t)", "a subquery"),
        ("*", "a star"),
        ("id = ?", "a placeholder"),
        ("id = $id", "a placeholder"),
        ("count(*) > 1", "aggregates"),
        ("row_number() OVER () = 1", "window functions"),
        ("id", "its type is INTEGER"),
        ("id < DATE '2024-01-01'", "Cannot compare"),
        ("no_such_function(id)", "no_such_function does not exist"),
        ('"inner".b = 1', 'Could not find key "b"'),
    ],
)
def test_expressions_that_are_not_row_conditions_are_refused(
    con: duckdb.DuckDBPyConnection, where: str, message: str
) -> None:
    with pytest.raises(StatementError) as raised:
        parse_predicate(con, where, COLUMNS)
    assert message in raised.value.message
    assert raised.value.remedy is not None


def test_a_missing_column_is_named_with_the_closest_match(con: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(ObjectNotFoundError) as raised:
        parse_predicate(con, "done AND regoin = 'eu'", COLUMNS)
    assert "no column `regoin`" in raised.value.message
    assert "`region`" in str(raised.value.remedy)


@pytest.mark.parametrize(
    ("order", "descending", "nulls"),
    [
        ("id", False, None),
        ("id DESC", True, None),
        ("id asc nulls first", False, "first"),
        ("id NULLS LAST", False, "last"),
    ],
)
def test_order_by_parses_one_sort_key(
    con: duckdb.DuckDBPyConnection, order: str, descending: bool, nulls: str | None
) -> None:
    key = parse_order(con, order, COLUMNS)
    assert (key.descending, key.nulls, [column.name for column in key.columns]) == (descending, nulls, ["id"])


@pytest.mark.parametrize("order", ["id, region", "id LIMIT 1", "", "id = ("])
def test_invalid_sort_keys_are_refused(con: duckdb.DuckDBPyConnection, order: str) -> None:
    with pytest.raises(StatementError):
        parse_order(con, order, COLUMNS)


def test_long_conditions_are_parsed(con: duckdb.DuckDBPyConnection) -> None:
    numbers = ", ".join(map(str, range(5000)))
    either = " OR ".join(f"id = {n}" for n in range(900))
    nested = "(" * 90 + "done" + ")" * 90 + " AND NOT (done)" * 50
    for where in (f"id IN ({numbers})", either, nested, "NOT " * 150 + "done"):
        assert parse_predicate(con, where, COLUMNS).columns


def test_a_condition_nested_too_deeply_is_refused_with_an_explanation(con: duckdb.DuckDBPyConnection) -> None:
    for where in ("NOT " * 300 + "done", f"id = {' + '.join(['1'] * 300)}", f"id = {' + '.join(['1'] * 3000)}"):
        with pytest.raises(StatementError, match=r"nested too deeply|[Mm]ax expression depth"):
            parse_predicate(con, where, COLUMNS)


def test_functions_without_parentheses_are_named_in_the_error(con: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(ObjectNotFoundError) as caught:
        parse_predicate(con, '"a b" = current_date', COLUMNS)
    assert caught.value.remedy == "Write `today()`."
