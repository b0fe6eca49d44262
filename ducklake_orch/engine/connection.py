"""The connection that a user gets: DuckDB's own, except that its cursors stay in the lake."""

import os
from typing import Any

import duckdb

from ducklake_orch.errors import ForkedConnectionError


class LakeConnection:
    """A DuckDB connection that is in the lake, and whose cursors are too.

    A plain DuckDB cursor forgets `USE`: a table made through it would land in memory and be lost. Everything else is
    passed on to the real connection, which `unwrap()` returns.

    Args:
        con: A connection that is in the lake.
        use: What its cursors run to get there.
    """

    __slots__ = ("__weakref__", "_con", "_cursors", "_pid", "_use")

    def __init__(self, con: duckdb.DuckDBPyConnection, use: str) -> None:
        self._con = con
        self._use = use
        self._cursors: list[LakeConnection] = []
        self._pid = os.getpid()

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # libraries check for DuckDB's type before they take a connection
        return duckdb.DuckDBPyConnection

    def unwrap(self) -> duckdb.DuckDBPyConnection:
        """Return DuckDB's own object, for functions that are written in C++ and take no other."""
        if os.getpid() != self._pid:
            raise ForkedConnectionError(
                f"This connection was opened by process {self._pid}, before the fork that made process {os.getpid()}.",
                remedy="Open the lake again in the new process.",
            )
        return self._con

    def cursor(self) -> "LakeConnection":
        """Return another connection to the same lake, for another thread say; it ends with this one."""
        cursor = LakeConnection(self.unwrap().cursor().execute(self._use), self._use)
        self._cursors.append(cursor)
        return cursor

    duplicate = cursor

    def close(self) -> None:
        """Close this connection and its cursors."""
        for cursor in self._cursors:
            cursor.close()
        self._cursors.clear()
        if os.getpid() == self._pid:
            self._con.close()

    def __enter__(self) -> "LakeConnection":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unwrap(), name)

    def __repr__(self) -> str:
        return f"<LakeConnection {self._use}>"
