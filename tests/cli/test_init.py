"""`ducklake-orch init` writes a working file and creates the lake, and overwrites nothing."""

from pathlib import Path

from tests.support.command_line import SECRET, run


def test_init_writes_a_working_file(tmp_path: Path) -> None:
    answer = run("init", "--create", "--lake", "sales")
    assert answer.code == 0
    assert "created lake `sales`" in answer.out
    assert (tmp_path / "sales.sqlite").exists()
    assert run("tables").code == 0


def test_init_create_creates_the_lake_of_an_existing_file(tmp_path: Path) -> None:
    text = 'lakes.mine = { catalog = "sqlite:///m.sqlite", storage = "./m" }'
    (tmp_path / "ducklake.toml").write_text(text)
    assert run("tables").code == 1
    assert run("init", "--create").code == 0
    assert run("tables").code == 0
    assert (tmp_path / "ducklake.toml").read_text() == text


def test_init_without_create_creates_no_lake(tmp_path: Path) -> None:
    assert run("init", "--json").json == {"path": str(tmp_path / "ducklake.toml"), "lake": "lake", "created": False}
    assert [path.name for path in tmp_path.iterdir()] == ["ducklake.toml"]


def test_init_overwrites_nothing_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "ducklake.toml").write_text("mine")
    answer = run("init")
    assert answer.code == 2
    assert "--force" in answer.err
    assert (tmp_path / "ducklake.toml").read_text() == "mine"
    assert run("init", "--force").code == 0


def test_init_in_another_folder_resolves_paths_from_the_working_directory(tmp_path: Path) -> None:
    arguments = ("--catalog", "duckdb:///here.ducklake", "--storage", "data", "--create")
    assert run("init", "conf/lakes.toml", *arguments).code == 0
    assert (tmp_path / "here.ducklake").exists()
    assert run("tables", "--config", "conf/lakes.toml").code == 0
    assert run("init", "conf", "--create").code == 0  # `conf` is a folder
    assert (tmp_path / "conf" / "lake.sqlite").exists()


def test_init_writes_no_secret(tmp_path: Path) -> None:
    storage = f"s3://bucket/prefix?access_key_id=k&secret_access_key={SECRET}"
    answer = run("init", "--catalog", f"postgresql://u:{SECRET}@h/db", "--storage", storage)
    assert answer.code == 0
    assert SECRET not in answer.out + (tmp_path / "ducklake.toml").read_text()


def test_a_failed_init_leaves_no_file(tmp_path: Path) -> None:
    answer = run("init", "--create", "--catalog", f"postgresql://u:{SECRET}@127.0.0.1:1/db")
    assert answer.code == 1
    assert not (tmp_path / "ducklake.toml").exists()
    assert SECRET not in answer.err
