"""Run statements with another setting of their connection: `temporary_setting`."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import duckdb

if TYPE_CHECKING:
    from ducklake_orch.engine.connection import LakeConnection


@contextmanager
def temporary_setting(con: "duckdb.DuckDBPyConnection | LakeConnection", name: str, value: str) -> Iterator[None]:
    """Set a setting for a block.

    Args:
        con: A connection whose later statements need the setting as it was, unless one of the block fails: that can
            abort the transaction, in which RESET fails, too, and must not hide the first error.
        name: The setting.
        value: Its value, as SQL.
    """
    con.execute(f"SET {name} = {value}")
    ignored: tuple[type[duckdb.Error], ...] = ()
    try:
        yield
    except duckdb.Error:
        ignored = (duckdb.Error,)
        raise
    finally:
        with suppress(*ignored):
            con.execute(f"RESET {name}")
