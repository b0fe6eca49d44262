"""PostgreSQL stores texts with backslashes unchanged, whether or not it takes them for escapes in literals."""

from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
import pytest

from ducklake_orch import CommitInfo, DuckLake
from tests.servers.postgres import PostgresServer
from tests.support.lakes import Servers
from tests.support.stored_tables import rows

TEXTS = ["\\a", "\\b", "\\", "\\'", "it's", "\\', null); drop table ducklake_snapshot; --"]


@pytest.mark.parametrize("conforming", ["on", "off"])
def test_texts_with_backslashes_are_stored_unchanged(servers: Servers, tmp_path: Path, conforming: str) -> None:
    server = servers.get(PostgresServer)
    database = f"backslashes_{uuid4().hex[:8]}"
    server.create_database(database)
    url = f"{server.url(database)}?options={quote(f'-c standard_conforming_strings={conforming}')}"
    lake = DuckLake.from_url("lake", catalog=url, storage=str(tmp_path / "files"), create_if_missing=True)
    lake.write(pa.table({"i": [0], "v": ["x"]}), "t", mode="append", partition_by=["i"])
    for number, text in enumerate(TEXTS, 1):
        info = CommitInfo(author=text, message=text, extra={"text": text})
        data = pa.table({"i": [number], "v": [text]})
        lake.write(data, "t", mode="append", commit=info, idempotency_key=text)
        assert lake.write(data, "t", mode="append", idempotency_key=text).replayed
        assert lake.read("t", where=f"v = {_sql(text)}").column("i").to_pylist() == [number]
        assert rows(lake, f"SELECT i FROM t WHERE v = {_sql(text)}") == [(number,)]
        newest = lake.snapshots(limit=1)[0]
        assert (newest.author, newest.message) == (text, text)
    assert lake.fsck(deep=True, storage=True).findings == []


def _sql(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
