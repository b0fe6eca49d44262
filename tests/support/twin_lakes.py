"""Two lakes with the same table, to compare what two engines do to it."""

from ducklake_orch import DuckLake
from tests.support.lakes import MakeLake

ROWS = """
    SELECT range AS i, ['a', NULL, 'it''s', 'é'][range % 4 + 1] AS s, DATE '2024-01-01' + (range % 40)::INT AS d,
           TIMESTAMPTZ '2024-01-01 00:00:00+02' + to_days((range % 9)::INT) AS ts,
           (range % 50 / 100)::DECIMAL(9, 2) AS x
    FROM range({}, {})"""


def twins(make_lake: MakeLake) -> list[DuckLake]:
    """Two lakes with the same table: renamed, altered, with files and rows that are deleted or in the catalog."""
    lakes = [make_lake("one"), make_lake("two")]
    for lake in lakes:
        steps = [f"CREATE TABLE t AS {ROWS.format(0, 1000)}", "DELETE FROM t WHERE i % 10 = 1"]
        steps += ["ALTER TABLE t RENAME i TO old", "ALTER TABLE t RENAME old TO i"]
        steps += ["ALTER TABLE t ADD COLUMN later INTEGER DEFAULT 7", "DELETE FROM t WHERE i = 5"]
        steps += [f"INSERT INTO t SELECT *, i % 3 FROM ({ROWS.format(1000, 1400)})"]
        steps += ["INSERT INTO t (i, s, later) VALUES (5000, 'a', 7), (5001, NULL, NULL)"]
        lake.execute(steps).raise_for_error()
    return lakes
