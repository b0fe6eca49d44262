"""`make demo`: a week of the pipeline, late orders, a merge and maintenance, run repeatedly."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dagster_defs import demo
from ducklake_orch import DuckLake

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("runs", [1, pytest.param(2, marks=pytest.mark.full)])
def test_repeated_demo_runs_end_with_the_same_rows(runs: int, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    environment = os.environ | {
        "SHOP_FOLDER": str(tmp_path),
        "DAGSTER_HOME": str(tmp_path / "home"),
        "PYTHONPATH": str(ROOT),
    }
    lake = DuckLake.from_url("shop", catalog=f"sqlite:///{tmp_path / 'shop.sqlite'}", storage=str(tmp_path / "files"))
    for times in range(1, runs + 1):
        command = [sys.executable, "-m", "dagster_defs.demo"]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "flush: 1 files out, 24 rows" in done.stdout
        assert f"merge: {24 + times} files in, 1 files out" in done.stdout
        assert lake.table("sales.orders").count() == 7 * 980 + 294
        assert lake.table("sales.daily_revenue").count() == 7 * 4
        assert lake.table("tills.sales").count() == 48 * times
        assert not lake.fsck().findings
    assert lake.health().grade == "ok"


def test_a_second_demo_in_one_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    first = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(first, fcntl.LOCK_EX)
    with pytest.raises(SystemExit, match="Another `make demo` runs in this folder"):
        demo.main()
    os.close(first)


def test_a_full_disk_is_named_before_the_demo_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setattr(demo, "_NEEDED_MB", 1 << 40)
    with pytest.raises(SystemExit, match=f"The disk of {tmp_path} has .* MB left: free"):
        demo.main()
