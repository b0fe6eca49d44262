"""Extensions are loaded from wheels; the error for a missing extension names the package that contains it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from ducklake_orch import DuckLake, errors
from ducklake_orch.engine import extensions
from ducklake_orch.engine.extensions import find_wheel, load_extension, open_database

WITHOUT_WHEELS = "sys.meta_path[:] = map(WithoutWheels, sys.meta_path)"
WHEELS = ["ducklake", "httpfs", "sqlite_scanner", "postgres_scanner", "mysql_scanner", "aws", "azure"]


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(duckdb.connect()) as connection:
        yield connection


def loaded(con: duckdb.DuckDBPyConnection) -> set[str]:
    return {row[0] for row in con.execute("SELECT extension_name FROM duckdb_extensions() WHERE loaded").fetchall()}


@pytest.mark.parametrize("name", WHEELS)
def test_every_extension_is_loaded_from_its_wheel(con: duckdb.DuckDBPyConnection, name: str) -> None:
    before = loaded(con)
    assert load_extension(con, name) == "wheel"
    assert loaded(con) - before == {name}
    wheel = find_wheel(name)
    assert wheel is not None
    assert wheel.versions == [f"v{duckdb.__version__}"]
    assert wheel.file is not None


def test_an_extension_that_duckdb_has_built_in_needs_no_wheel(con: duckdb.DuckDBPyConnection) -> None:
    assert find_wheel("parquet") is None
    assert load_extension(con, "parquet") == "installed"


def test_a_process_checks_the_signature_of_an_extension_once_and_again_when_its_file_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = find_wheel("httpfs")
    assert genuine is not None
    assert genuine.file is not None
    file = tmp_path / genuine.file.name
    file.write_bytes(genuine.file.read_bytes())
    monkeypatch.setattr(extensions, "find_wheel", lambda _: extensions.Wheel(file, []))
    checks, check = [], extensions.load_extension

    def counted(con: duckdb.DuckDBPyConnection, name: str) -> str:
        checks.append(name)
        return check(con, name)

    monkeypatch.setattr(extensions, "load_extension", counted)

    def opened() -> None:
        with closing(open_database(["httpfs"], {"threads": 1})) as con:
            assert loaded(con) >= {"httpfs"}
            assert con.execute("SELECT current_setting('allow_unsigned_extensions')").fetchone() == (False,)
            with pytest.raises(duckdb.Error, match="Cannot change allow_unsigned_extensions"):
                con.execute("SET allow_unsigned_extensions = true")

    for _ in range(3):
        opened()
    assert checks == ["httpfs"]
    with file.open("r+b") as changed:
        changed.write(b"changed")
    with pytest.raises(errors.ExtensionMissingError):
        open_database(["httpfs"], {})


def test_an_installed_extension_is_loaded_without_its_wheel(
    con: duckdb.DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = find_wheel("httpfs")
    assert wheel is not None
    con.execute(f"SET extension_directory = '{tmp_path}'")
    con.execute(f"INSTALL '{wheel.file}'")
    monkeypatch.setattr(extensions, "find_spec", lambda _: None)
    assert load_extension(con, "httpfs") == "installed"


def test_an_extension_without_a_valid_signature_is_refused(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    with DuckLake.local(tmp_path / "lake").connect() as connection:
        assert connection.execute("SELECT current_setting('allow_unsigned_extensions')").fetchone() == (False,)
        row = connection.execute("SELECT current_setting('allow_extensions_metadata_mismatch')").fetchone()
        assert row == (False,)
    lake = DuckLake.local(tmp_path / "lake", settings={"allow_unsigned_extensions": True})
    with pytest.raises(errors.SettingError), lake.connect():
        raise AssertionError("the block must not run")
    # A modified wheel is refused.
    genuine = find_wheel("httpfs")
    assert genuine is not None
    assert genuine.file is not None
    package = tmp_path / "duckdb_extension_httpfs"
    changed = package / "extensions" / f"v{duckdb.__version__}" / "httpfs.duckdb_extension"
    changed.parent.mkdir(parents=True)
    content = bytearray(genuine.file.read_bytes())
    content[4096] ^= 1
    changed.write_bytes(content)
    (package / "__init__.py").touch()
    run = in_a_new_process(tmp_path, f"sys.path.insert(0, {str(tmp_path)!r})", "httpfs")
    assert "ExtensionMissingError: DuckDB extension `httpfs` cannot be loaded" in run
    assert "signature" in run
    assert f"pip install --force-reinstall duckdb-extension-httpfs=={duckdb.__version__}" in run


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("postgres_scanner", "[postgres]'"),
        ("mysql_scanner", "[mysql]'"),
        ("aws", "[s3]'"),
        ("azure", "[azure]'"),
        ("motherduck", "[motherduck]'"),
        ("httpfs", f"duckdb-extension-httpfs=={duckdb.__version__}"),
    ],
)
def test_the_error_for_a_missing_extension_names_its_extra(name: str, package: str, tmp_path: Path) -> None:
    printed = in_a_new_process(tmp_path, WITHOUT_WHEELS, name)
    assert f"ExtensionMissingError: DuckDB extension `{name}` cannot be loaded" in printed
    command = next(line for line in printed.splitlines() if "pip install" in line)
    assert command.endswith(package)


@pytest.mark.parametrize("name", ["no_such_extension", "../evil", "a.b"])
def test_the_error_for_an_unknown_extension_names_its_field(name: str, tmp_path: Path) -> None:
    printed = in_a_new_process(tmp_path, WITHOUT_WHEELS, name)
    assert f"ExtensionMissingError: DuckDB extension `{name}` is not installed and could not be fetched" in printed
    assert "`extensions`" in printed


def test_a_missing_extension_leaves_no_files_behind(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "lake", extensions=["no_such_extension"])
    with pytest.raises(errors.ExtensionMissingError, match="`no_such_extension`") as caught:
        lake.execute("SELECT 1")
    assert not caught.value.retryable
    assert list(tmp_path.iterdir()) == []


def test_the_error_for_a_wheel_of_another_engine_names_the_right_version(
    con: duckdb.DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "duckdb_extension_other_thing"
    (package / "extensions" / "v0.9.1").mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(errors.ExtensionMissingError) as caught:
        load_extension(con, "other_thing")
    text = str(caught.value)
    assert "v0.9.1" in text
    assert f"v{duckdb.__version__}" in text
    assert f"duckdb-extension-other-thing=={duckdb.__version__}" in text


def test_the_error_of_a_statement_names_the_extension_it_needs(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "lake", settings={"extension_directory": str(tmp_path / "none")})
    result = lake.execute("SELECT * FROM mysql_query('x', 'y')")
    error = result.commands[0].error
    assert error is not None
    assert not error.retryable
    assert "mysql" in str(error)


def in_a_new_process(home: Path, prepare: str, name: str) -> str:
    """Load an extension in a process without it in HOME and without network; return the output."""
    code = f"""
import sys, duckdb
class WithoutWheels:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, *rest):
        return None if name.startswith("duckdb_extension_") else self.finder.find_spec(name, *rest)
{prepare}
from ducklake_orch.engine.extensions import load_extension
con = duckdb.connect()
# The same as a machine without network, at once.
con.execute("SET custom_extension_repository = '{home}/no-repository'")
load_extension(con, {name!r})
"""
    environment = {**os.environ, "HOME": str(home)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    return run.stdout + run.stderr
