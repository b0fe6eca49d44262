"""Credentials in the environment are not used for a storage with configured credentials."""

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from tests.support.backends import GCS, R2, S3_DISK, SQLITE, Backend
from tests.support.lakes import MakeLake


@pytest.fixture
def lake(make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch) -> DuckLake:
    lake = make_lake()
    # The extension reads these variables when it is loaded, for every secret that omits one of the values.
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "of-somebody-else")
    return lake


@pytest.mark.parametrize("backend", [Backend(SQLITE, kind) for kind in (S3_DISK, GCS, R2)], ids=str, indirect=True)
def test_a_session_token_in_the_environment_is_not_used_with_static_keys(lake: DuckLake) -> None:
    lake.write(pa.table({"id": [1]}), "orders", mode="append")
    assert lake.read("orders").to_pylist() == [{"id": 1}]
    with lake.connect() as con:  # the secret that writes by the engine use
        con.execute("INSERT INTO orders VALUES (2)")
        con.execute("CALL ducklake_flush_inlined_data('lake')")
        assert sorted(con.execute("FROM orders").fetchall()) == [(1,), (2,)]
