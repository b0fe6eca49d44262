"""`ducklake-orch doctor` runs every check on real lakes."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ducklake_orch import DuckLake
from tests.servers.s3 import VersityS3
from tests.support.backends import backends, catalogs
from tests.support.command_line import SECRET, Answer, run
from tests.support.lakes import CANARY

# --- doctor ------------------------------------------------------------------------------------------------------


def test_doctor_without_a_lake_checks_the_machine() -> None:
    answer = run("doctor", "--json")
    assert answer.code == 0
    checks = answer.checks()
    assert {"package", "python", "duckdb", "extension ducklake", "java", "spark python"} <= checks.keys()
    assert checks["configuration"]["status"] == "skip"
    assert "wheel" in checks["extension ducklake"]["detail"]
    assert set(checks["java"]) == {"name", "status", "detail", "remedy"}


def test_doctor_reports_a_healthy_lake(lake: DuckLake) -> None:
    answer = run("doctor", "--json")
    assert answer.code == 0
    checks = answer.checks()
    ok = ["catalog file", "lock", "catalog", "catalog format", "storage"]
    assert [checks[name]["status"] for name in ok] == ["ok"] * 5
    assert checks["catalog format"]["detail"].startswith("1.0")
    assert checks["storage writable"]["status"] == "skip"
    human = run("doctor")
    assert human.code == 0
    assert "0 failed" in human.out


def test_doctor_shows_the_origin_of_settings(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUCKLAKE_THREADS", "2")
    checks = run("doctor", "--json").checks()
    assert checks["setting threads"]["detail"] == "2 (environment DUCKLAKE_THREADS)"
    assert checks["setting catalog.path"]["detail"].endswith("(ducklake.toml [lakes.lake])")
    assert "setting retry.max_attempts" not in checks
    assert run("doctor", "--json", "--all").checks()["setting retry.max_attempts"]["detail"] == "10 (default)"


def test_doctor_hides_the_value_of_a_secret_setting(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUCKLAKE_ATTACH_OPTIONS__META_PASSWORD", SECRET)
    monkeypatch.setenv("DUCKLAKE_SETTINGS__S3_SECRET_ACCESS_KEY", SECRET)
    answers = [run("doctor"), run("doctor", "--json")]
    assert all(SECRET not in answer.out + answer.err for answer in answers)


def test_doctor_names_the_lock_holder(lake: DuckLake) -> None:
    from ducklake_orch.engine.locks import FileQueue

    path = lake.config.catalog.path  # type: ignore[union-attr]
    with FileQueue(path).hold("a long write", 1):
        detail = run("doctor", "--json").checks()["lock"]["detail"]
    assert f"held by process {os.getpid()}" in detail
    assert "a long write" in detail


def test_doctor_fails_on_a_missing_lake() -> None:
    answer = run("doctor", "--catalog", "sqlite:///nowhere.sqlite", "--json")
    assert answer.code == 1
    assert answer.checks()["catalog"]["status"] == "fail"
    assert not Path("nowhere.sqlite").exists()


def test_doctor_creates_no_lake_despite_create_if_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUCKLAKE_CREATE_IF_MISSING", "true")
    answer = run("doctor", "--catalog", "sqlite:///nowhere.sqlite", "--json")
    assert (answer.code, answer.checks()["catalog"]["status"]) == (0, "warn")
    assert list(Path().iterdir()) == []


def test_doctor_checks_the_machine_despite_an_invalid_configuration() -> None:
    answer = run("doctor", "--config", "nowhere.toml", "--json")
    assert answer.code == 2
    assert answer.checks()["configuration"]["status"] == "fail"
    assert answer.checks()["duckdb"]["status"] == "ok"


def test_doctor_warns_about_options_that_differ(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUCKLAKE_OPTIONS__PARQUET_COMPRESSION", "zstd")
    check = run("doctor", "--json").checks()["options"]
    assert check["status"] == "warn"
    assert "apply_options" in check["remedy"]


def test_doctor_fails_on_a_storage_that_cannot_be_written(lake: DuckLake, tmp_path: Path) -> None:
    blocked = tmp_path / "a-file"
    blocked.write_text("")
    catalog = f"sqlite:///{tmp_path}/lake.sqlite"
    answer = run("doctor", "--write", "--json", "--catalog", catalog, "--storage", str(blocked / "inside"))
    assert answer.code == 1
    assert answer.checks()["storage writable"]["status"] == "fail"


@backends()
def test_doctor_deletes_its_probe_file(make_lake: Callable[..., DuckLake]) -> None:
    lake = make_lake()
    lake.execute("CREATE TABLE t AS SELECT range AS i FROM range(50)").raise_for_error()
    answer = run("doctor", "--write", "--json", *urls_of(lake))
    assert answer.code == 0, answer.out
    checks = answer.checks()
    assert [checks[name]["status"] for name in ("catalog", "lock", "storage", "storage writable")] == ["ok"] * 4
    assert ".parquet" in checks["storage"]["detail"]
    with lake.connect() as con:
        files = con.execute("SELECT file FROM glob(?)", [f"{lake.config.data_path}**"]).fetchall()
    assert len(files) == 1
    if lake.config.data_path and lake.config.data_path.startswith("/"):
        assert not list(Path(lake.config.data_path).glob(".ducklake-orch-probe*"))


@catalogs(pooled=True)
def test_doctor_shows_no_server_secret(make_lake: Callable[..., DuckLake]) -> None:
    lake = make_lake()
    with lake.connect():
        pass
    for answer in (run("doctor", *urls_of(lake)), run("doctor", "--json", "--all", *urls_of(lake))):
        assert answer.code == 0
        assert not leaks(lake, answer)


def urls_of(lake: DuckLake) -> list[str]:
    assert lake.config.storage is not None
    return [
        *("--catalog", lake.config.catalog.to_url(reveal=True)),
        *("--storage", lake.config.storage.to_url(reveal=True)),
        *("--lake", lake.config.name),
    ]


def leaks(lake: DuckLake, answer: Answer) -> bool:
    return any(secret in answer.out + answer.err for secret in {CANARY, *lake.config.secret_values()})


@pytest.mark.parametrize("wrong", ["secret_access_key", "bucket"])
def test_doctor_fails_on_a_bucket_it_cannot_use(wrong: str, versity_s3: VersityS3) -> None:
    versity_s3.create_bucket(f"doctor-{wrong.replace('_', '-')}")
    bucket = "not-there" if wrong == "bucket" else "doctor-secret-access-key"
    secret = SECRET if wrong == "secret_access_key" else versity_s3.secret_access_key
    storage = f"s3://{bucket}/lake?endpoint=http://{versity_s3.endpoint}&region=us-east-1"
    storage += f"&access_key_id={versity_s3.access_key_id}&secret_access_key={secret}"
    answer = run("doctor", "--write", "--json", "--catalog", "sqlite:///lake.sqlite", "--storage", storage)
    assert answer.code == 1
    checks = answer.checks()
    assert [checks[name]["status"] for name in ("storage", "storage writable")] == ["fail", "fail"]
    assert secret not in answer.out + answer.err
