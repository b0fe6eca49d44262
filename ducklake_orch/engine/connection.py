"""The connection that users get: DuckDB's own, except that its cursors stay in the lake."""

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import duckdb

from ducklake_orch.engine.qualifying import run_qualified
from ducklake_orch.errors import ForkedConnectionError

_RUNS_SQL = frozenset({"execute", "executemany", "sql", "query", "from_query"})


def close(con: duckdb.DuckDBPyConnection) -> None:
    """Close a connection after its transaction, if one is open, was rolled back.

    Closing rolls back as well, but DuckDB ends the whole process if that fails because a server has gone away.
    """
    with suppress(duckdb.Error):  # no transaction is open, or the server has ended it
        con.interrupt()  # after Ctrl-C the statement's threads keep running, and ROLLBACK would wait for them
        con.execute("ROLLBACK")
    con.close()


class LakeConnection:
    """A DuckDB connection whose current database is the lake, for its cursors as well.

    A plain DuckDB cursor forgets `USE`: a table created on it would be in memory and be lost. All other calls are
    passed to the real connection, which `unwrap()` returns.

    Args:
        con: A connection in the lake.
        use: The `USE` statement that its cursors run.
        alias: The lake's name in SQL, which a schema of the lake may have as well; None for another database.

    Attributes:
        qualifies: Whether every method that runs SQL puts the lake before ambiguous names; `run` always does. If not,
            the methods are DuckDB's own, which find Python variables of their caller by name.
    """

    __slots__ = ("__weakref__", "_alias", "_con", "_cursors", "_pid", "_use", "qualifies")

    def __init__(self, con: duckdb.DuckDBPyConnection, use: str, alias: str | None = None) -> None:
        self._con = con
        self._use = use
        self._alias = alias
        self.qualifies = False
        self._cursors: list[LakeConnection] = []
        self._pid = os.getpid()

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # libraries check for DuckDB's type before they take a connection
        return duckdb.DuckDBPyConnection

    def unwrap(self) -> duckdb.DuckDBPyConnection:
        """Return DuckDB's own object, for C++ functions that accept no other."""
        if os.getpid() != self._pid:
            raise ForkedConnectionError(
                f"This connection was opened by process {self._pid}, before the fork that made process {os.getpid()}.",
                remedy="Open the lake again in the new process.",
            )
        return self._con

    def cursor(self) -> "LakeConnection":
        """Return another connection to the same lake, for another thread for example; it is closed with this one."""
        cursor = LakeConnection(self.unwrap().cursor().execute(self._use), self._use, self._alias)
        cursor.qualifies = self.qualifies
        self._cursors.append(cursor)
        return cursor

    duplicate = cursor

    def close(self) -> None:
        """Close this connection and its cursors."""
        for cursor in self._cursors:
            cursor.close()
        self._cursors.clear()
        if os.getpid() == self._pid:
            close(self._con)

    def __enter__(self) -> "LakeConnection":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.unwrap(), name)
        return partial(self._run, attribute) if self.qualifies and name in _RUNS_SQL else attribute

    def run(self, sql: str, *parameters: Any) -> None:
        """Execute a statement; this connection then holds its result."""
        self._run(self.unwrap().execute, sql, *parameters)

    def _run(self, run: Callable[..., Any], sql: Any, *args: Any, **options: Any) -> Any:
        if self._alias is None or not isinstance(sql, str):
            return run(sql, *args, **options)
        if ";" in sql and not (args or options):
            # One statement at a time, so that a second attempt repeats only the statement that failed.
            *first, sql = [statement.query for statement in self.unwrap().extract_statements(sql)] or [sql]
            for statement in first:
                run_qualified(run, self._alias, statement)
        return run_qualified(run, self._alias, sql, *args, **options)

    def __repr__(self) -> str:
        return f"<LakeConnection {self._use}>"
