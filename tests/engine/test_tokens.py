"""Statements are classified by their words, wherever strings, names and comments end for the engine."""

from pathlib import Path

import duckdb
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.engine.scripts import MAINTENANCE, secrets_in, split
from ducklake_orch.engine.tokens import bare
from ducklake_orch.errors import ConfigError, StatementError

CALL = "ducklake_expire_snapshots('lake', older_than => now())"


def calls(sql: str) -> bool:
    with duckdb.connect() as con:
        (command,) = split(con, sql)
    return bool(command.calls & MAINTENANCE)


@pytest.mark.parametrize(
    "sql",
    [
        f"""SELECT 1 AS "it's", * FROM {CALL} WHERE 'x' = 'x'""",
        f"""SELECT 1 AS "--", * FROM {CALL}""",
        f"""SELECT 1 AS "/*", * FROM {CALL} /* */""",
        f"""SELECT 1 AS "$$", * FROM {CALL} WHERE '$$' = ''""",
        f"SELECT * FROM --\r{CALL}",
        f"SELECT E'a\\'', * FROM {CALL} WHERE 'b' = ''",
        f"SELECT /* /* */ ' */ * FROM {CALL} /* ' */",
        "CALL \"ducklake_expire_snapshots\"('lake')",
    ],
)
def test_a_call_is_found_behind_what_looks_like_a_string_or_a_comment(sql: str) -> None:
    assert calls(sql)


@pytest.mark.parametrize(
    "sql",
    [
        'SELECT 1 AS "ducklake_expire_snapshots()"',
        "SELECT E'\\' ducklake_expire_snapshots('",
        "SELECT 1 /* /* */ set_option() */",
    ],
)
def test_a_call_in_a_name_a_string_or_a_comment_is_none(sql: str) -> None:
    assert not calls(sql)


def test_bare_text_keeps_words_and_leaves_out_strings_and_comments() -> None:
    assert (
        bare("""SELECT a.b -- x\n, "q; ""'" FROM t /* y */ WHERE v='--'""")
        == """SELECT a.b , "q__""_" FROM t WHERE v=' '"""
    )


@pytest.mark.parametrize("sql", ["DELETE FROM t WHERE k = 1 \0 AND part = 2", "SELECT '\ud800'"])
def test_text_that_the_engine_does_not_read_is_refused(sql: str) -> None:
    with duckdb.connect() as con, pytest.raises(StatementError, match="of the SQL is"):
        split(con, sql)


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE SECRET s (TYPE s3, SECRET E'canary\\'canary')",
        "CREATE SECRET s (TYPE s3, SECRET 'canary",
        "SET x_token = 'canary'",
    ],
)
def test_strings_of_statements_with_secrets_are_masked(sql: str) -> None:
    assert "canary" not in secrets_in(sql)(sql)


def test_a_secret_that_is_not_unicode_is_masked() -> None:
    sql = "CREATE SECRET s (TYPE s3, SECRET 'canary\ud800')"
    assert "canary" not in secrets_in(sql)(sql)


def test_conditions_and_defaults_that_are_not_unicode_are_refused(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    lake.create_table("t", {"v": "VARCHAR"})
    with pytest.raises(StatementError, match=r"Character 6 of the SQL is not Unicode"):
        lake.read("t", where="v = '\udce9'")
    with pytest.raises(ConfigError, match=r"cannot be the default of `v`"):
        lake.create_table("u", {"v": "VARCHAR"}, defaults={"v": "\udce9"})
