"""A flush writes inlined rows to partitions of every kind of key: rows, row ids, feed and snapshots stay the same."""

from typing import Any

import duckdb

from ducklake_orch import DuckLake
from ducklake_orch.engine.quoting import identifier
from tests.support.backends import MYSQL, SQLITE, Backend, catalogs

# Two different values of each type.
VALUES = {
    "BOOLEAN": ("true", "false"),
    "TINYINT": ("-128", "127"),
    "SMALLINT": ("-32768", "7"),
    "INTEGER": ("-2147483648", "2"),
    "BIGINT": ("9223372036854775807", "-1"),
    "UTINYINT": ("255", "0"),
    "USMALLINT": ("65535", "1"),
    "UINTEGER": ("4294967295", "1"),
    "UBIGINT": ("18446744073709551615", "1"),
    "DECIMAL(38,10)": ("-9999999999999999999999999999.9999999999", "0.1"),
    "FLOAT": ("'-inf'", "0.1"),
    "DOUBLE": ("'nan'", "5e-324"),
    "VARCHAR": ("'it''s São \\ \"x\" 100 %/='", "''"),
    "JSON": ("""'{"a": "it''s é"}'""", "'null'"),
    "BLOB": (r"'\x00\xFF'::BLOB", "''::BLOB"),
    "UUID": ("'ffffffff-ffff-ffff-ffff-ffffffffffff'", "'00000000-0000-0000-0000-000000000001'"),
    "DATE": ("'infinity'", "'5877642-06-25 (BC)'"),
    "TIME": ("'23:59:59.999999'", "'00:00:00'"),
    "TIMESTAMP": ("'-infinity'", "'0044-03-15 (BC) 01:02:03'"),
    "TIMESTAMP_S": ("'2024-02-29 23:59:59'", "'1969-12-31 00:00:00'"),
    "TIMESTAMP_MS": ("'2024-02-29 23:59:59.123'", "'1969-12-31 00:00:00'"),
    "TIMESTAMP_NS": ("'2024-01-01 00:00:00.123456789'", "'1969-12-31 00:00:00'"),
    "TIMESTAMPTZ": ("'2024-02-29 12:00:00+14'", "'infinity'"),
    "INTEGER[]": ("[1, NULL]", "[]"),
    "STRUCT(a INTEGER, b VARCHAR)": ("{'a': 1, 'b': 'x é'}", "{'a': NULL, 'b': NULL}"),
    "MAP(VARCHAR, INTEGER)": ("MAP {'a': 1}", "MAP {}"),
}
# Other values for MySQL, which has no infinity, no NaN, and no years before 1000.
ON_MYSQL = {
    "FLOAT": ("0.1", "-1"),
    "DOUBLE": ("0.1", "5e-300"),
    "DATE": ("'2024-02-29'", "'9999-12-31'"),
    "TIMESTAMP": ("'2024-02-29 23:59:59.123456'", "'1000-03-15 01:02:03'"),
    "TIMESTAMPTZ": ("'2024-02-29 12:00:00+14'", "'1969-12-31 23:59:59+00'"),
}
NESTED = ("INTEGER[]", "STRUCT(a INTEGER, b VARCHAR)", "MAP(VARCHAR, INTEGER)")
IDENTITY = ("BOOLEAN", "TINYINT", "INTEGER", "UBIGINT", "DECIMAL(38,10)", "DOUBLE", "VARCHAR", "JSON", "BLOB", "UUID")
HASHED = ("INTEGER", "BIGINT", "VARCHAR", "JSON", "BLOB", "UUID", "DATE", "TIMESTAMP")
KEYS = [
    *(*IDENTITY, "DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ"),
    *(f"bucket(4, {kind})" for kind in HASHED),
    *(f"{part}(TIMESTAMPTZ)" for part in ("year", "month", "day", "hour")),
    *(f"{part}(TIMESTAMP)" for part in ("year", "hour")),
    "month(DATE)",
]
NAMES = {kind: f"c{number} é" for number, kind in enumerate(VALUES)}


def key_sql(key: str) -> str:
    """Return the SQL of a key of `KEYS`, with the column instead of its type."""
    for kind, name in NAMES.items():
        if key == kind or key.endswith((f"({kind})", f", {kind})")):
            return key.removesuffix(kind) + identifier(name) if key == kind else key.replace(kind, identifier(name))
    raise KeyError(key)


def row(kinds: list[str], number: int, side: int | None) -> str:
    samples = VALUES if NESTED[0] in kinds else VALUES | ON_MYSQL
    values = ["NULL" if side is None else f"({samples[kind][side]})::{kind}" for kind in kinds]
    return f"({number}, {', '.join(values)})"


def in_one_transaction(con: Any, statements: list[str]) -> None:
    for statement in ("BEGIN", *statements, "COMMIT"):
        con.execute(statement)


class Tables:
    """A table for each key, each with a column of every type, and their rows as plain DuckDB reads them."""

    def __init__(self, lake: DuckLake) -> None:
        self._lake = lake
        self.names = {f"t{number}": key_sql(key) for number, key in enumerate(KEYS)}

    def fill(self, backend: Backend) -> None:
        # With inlining, the engine creates no nested columns on MySQL.
        kinds = [kind for kind in VALUES if kind not in NESTED or backend.catalog is not MYSQL]
        columns = ", ".join(f"{identifier(NAMES[kind])} {kind}" for kind in kinds)
        first = ", ".join(row(kinds, number, side) for number, side in ((1, 0), (2, 1), (3, None)))
        more = ", ".join(row(kinds, number, side) for number, side in ((4, 1), (5, 0)))
        with self._lake.connect() as con:
            in_one_transaction(con, [f"CREATE TABLE {name} (n INTEGER, {columns})" for name in self.names])
            alter = [f"ALTER TABLE {name} SET PARTITIONED BY ({key})" for name, key in self.names.items()]
            insert = [f"INSERT INTO {name} VALUES {first}" for name in self.names]
            if backend.catalog is MYSQL:  # the engine can inline only one INSERT there
                in_one_transaction(con, alter)
                in_one_transaction(con, insert)
                return
            in_one_transaction(con, insert)
            in_one_transaction(con, alter)
            in_one_transaction(con, [f"INSERT INTO {name} VALUES {more}" for name in self.names])
            in_one_transaction(con, [f"DELETE FROM {name} WHERE n IN (2, 5)" for name in self.names])
            in_one_transaction(con, [f"UPDATE {name} SET n = 6 WHERE n = 3" for name in self.names])

    def read_all(self, last: int) -> dict[str, Any]:
        """Return the rows of every snapshot, of the feed, and of a condition on each value of a key."""
        with self._lake.connect() as con:
            con.execute("BEGIN")
            found = {f"{name} {key}": self._rows_of(con, name, key, last) for name, key in self.names.items()}
            con.execute("COMMIT")
        return found

    def _rows_of(self, con: Any, name: str, key: str, last: int) -> list[str]:
        sql = [f"SELECT {at} AS v, rowid, * FROM {name} AT (VERSION => {at})" for at in range(2, last + 1)]
        feed = f"ducklake_table_changes('{self._lake.config.alias}', 'main', '{name}', 0, {last})"
        queries = [" UNION ALL ".join(sql), f"FROM {feed}"]
        for kind, column in NAMES.items():
            if key in (identifier(column), f"bucket(4, {identifier(column)})"):
                counts = (
                    f"(SELECT count(*) FROM {name} WHERE {identifier(column)} = ({v})::{kind})" for v in VALUES[kind]
                )
                queries.append(f"SELECT {', '.join(counts)}")
        return [repr(row) for query in queries for row in sorted(map(repr, con.execute(query).fetchall()))]


def feed(lake: DuckLake, name: str) -> list[str]:
    with duckdb.connect() as con:
        con.register("changes", lake.changes(name))
        return sorted(row[0] for row in con.execute("SELECT CAST(c AS VARCHAR) FROM changes c").fetchall())


@catalogs(quick=[SQLITE])
def test_a_flush_into_partitions_of_every_key_changes_no_rows(lake: DuckLake, backend: Backend) -> None:
    tables = Tables(lake)
    tables.fill(backend)
    last = lake.snapshots(limit=1)[0].snapshot_id
    before = tables.read_all(last)
    ours = {name: feed(lake, name) for name in list(tables.names)[::8]}
    report = lake.maintain(operations=["flush"]).raise_for_error()
    assert {step.status for step in report.operations} == {"done"}
    after = tables.read_all(last)
    assert {key: rows for key, rows in after.items() if rows != before[key]} == {}
    assert {name: feed(lake, name) for name in ours} == ours
    assert {step.action for step in lake.plan_maintenance(operations=["flush"]).operations} == {"skip"}
    assert lake.fsck(deep=True, storage=True).findings == []
