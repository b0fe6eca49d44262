"""Quoted names and values round-trip: DuckDB and libpq read back the original."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from typing import Any

import duckdb
import psycopg.conninfo
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import SecretStr

from ducklake_orch.engine.quoting import TableName, conninfo, identifier, literal, options, table_name
from ducklake_orch.errors import ConfigError

TEXTS = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
NAMES = TEXTS.filter(bool)
HOSTILE = "a'b\"c;d\\e f@g/h%i--é\n$$"


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(duckdb.connect(config={"allow_unredacted_secrets": True})) as connection:
        yield connection


def column(con: duckdb.DuckDBPyConnection, sql: str) -> Any:
    row = con.execute(sql).fetchone()
    assert row is not None
    return row[0]


@given(NAMES)
@example("select")
@example("a.b")
@example(HOSTILE)
def test_any_name_is_quoted_as_one_identifier(con: duckdb.DuckDBPyConnection, name: str) -> None:
    cursor = con.execute(f"SELECT 1 AS {identifier(name)}")
    assert cursor.description is not None
    assert [column_description[0] for column_description in cursor.description] == [name]


@given(TEXTS)
@example(HOSTILE)
@example("'; DROP TABLE t; --")
def test_any_text_is_quoted_as_one_literal(con: duckdb.DuckDBPyConnection, text: str) -> None:
    assert column(con, f"SELECT {literal(text)}") == text


@given(st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.none()))
def test_booleans_and_integers_keep_value_and_type(con: duckdb.DuckDBPyConnection, value: Any) -> None:
    read_back = column(con, f"SELECT {literal(value)}")
    assert (read_back, type(read_back)) == (value, type(value))


@given(st.floats(allow_nan=False))
@example(0.9551549644307771)
@example(float("inf"))
@example(-0.0)
@example(5e-324)
def test_fractions_keep_their_value(con: duckdb.DuckDBPyConnection, value: float) -> None:
    assert column(con, f"SELECT {literal(value)}::DOUBLE") == value


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)))
def test_times_keep_their_microseconds_and_zone(con: duckdb.DuckDBPyConnection, value: datetime) -> None:
    assert column(con, f"SELECT {literal(value)}::TIMESTAMP") == value
    microseconds = column(con, f"SELECT epoch_us({literal(value.replace(tzinfo=UTC))}::TIMESTAMPTZ)")
    assert microseconds == column(con, f"SELECT epoch_us({literal(value)}::TIMESTAMP)")
    assert column(con, f"SELECT {literal(value.date())}::DATE") == date(value.year, value.month, value.day)


def test_a_secret_is_written_in_full_only_as_a_literal(con: duckdb.DuckDBPyConnection) -> None:
    secret = SecretStr(HOSTILE)
    assert column(con, f"SELECT {literal(secret)}") == HOSTILE
    assert HOSTILE not in f"{secret!r}{secret}"


@pytest.mark.parametrize("name", ["", "a\x00b", "a\udfffb"])
def test_an_invalid_identifier_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a name"):
        identifier(name)


def test_a_text_with_nul_is_refused_without_being_shown() -> None:
    with pytest.raises(ConfigError, match="NUL") as caught:
        literal(SecretStr("can\x00ary"))
    assert "ary" not in str(caught.value)


@given(st.dictionaries(st.sampled_from(["user", "options", "sslrootcert", "application_name"]), NAMES))
@example({"options": HOSTILE, "user": "\\'"})
def test_a_connection_string_is_read_back_by_libpq(values: dict[str, str]) -> None:
    assert psycopg.conninfo.conninfo_to_dict(conninfo(values)) == values


def test_options_omit_none_and_write_maps() -> None:
    given = {"data_path": "it's", "secret": None, "encrypted": False, "limit": 0, "params": {"k'": 1}, "type": "s3"}
    expected = "(DATA_PATH 'it''s', ENCRYPTED false, LIMIT 0, PARAMS MAP {'k''': '1'}, TYPE s3)"
    assert options(given) == expected
    assert options({}) == options({"a": None}) == ""


def test_an_option_keyword_is_bare_only_if_it_is_a_word() -> None:
    assert options({"type": "s3; DROP"}) == "(TYPE 's3; DROP')"


@pytest.mark.parametrize("name", ["a b", "x)", "a;b", "", "é", "1a"])
def test_an_option_name_that_is_not_a_word_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of an option"):
        options({name: 1})


@given(TEXTS, TEXTS)
@example(HOSTILE, HOSTILE)
def test_the_engine_reads_options_back_unchanged(con: duckdb.DuckDBPyConnection, value: str, header: str) -> None:
    values = {"type": "http", "bearer_token": SecretStr(value), "extra_http_headers": {"x": header}}
    con.execute(f"CREATE OR REPLACE TEMPORARY SECRET secret {options(values)}")
    secret = column(con, "SELECT secret_string FROM duckdb_secrets(redact => false)")
    assert f"bearer_token={value};" in secret
    assert secret.endswith("extra_http_headers=" + column(con, f"SELECT MAP {{'x': {literal(header)}}}::VARCHAR"))


class TestTableNames:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("t", ("main", "t")),
            ("s.t", ("s", "t")),
            ('main."a.b"', ("main", "a.b")),
            ('"s.x".t', ("s.x", "t")),
            ('"say ""hi"""', ("main", 'say "hi"')),
            ("my schema.a-b", ("my schema", "a-b")),
            ("select", ("main", "select")),
            ("it's", ("main", "it's")),
        ],
    )
    def test_a_part_with_a_dot_or_quote_is_double_quoted(self, text: str, expected: tuple[str, str]) -> None:
        assert table_name(text) == expected

    @pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a.b.c", '"a', 'a"b', '"a"b', 'a."b".c', '""', "a..b"])
    def test_an_invalid_table_name_is_refused_with_the_right_form(self, text: str) -> None:
        with pytest.raises(ConfigError, match="is not the name of a table") as caught:
            table_name(text)
        assert 'main."a.b"' in str(caught.value)

    @given(NAMES, NAMES)
    def test_a_printed_table_name_is_parsed_back(self, schema: str, table: str) -> None:
        name = TableName(schema, table)
        assert table_name(str(name)) == name

    @given(NAMES)
    @example(HOSTILE)
    @example("tables")
    def test_any_table_name_reaches_the_engine_unchanged(self, con: duckdb.DuckDBPyConnection, table: str) -> None:
        name = TableName("main", table)
        con.execute(f"CREATE OR REPLACE TEMP VIEW {identifier(table)} AS SELECT 42 AS x")
        count = column(con, f"SELECT count(*) FROM duckdb_views() WHERE NOT internal AND view_name = {literal(table)}")
        assert count == 1
        con.execute(f"DROP VIEW {identifier(name.table)}")
