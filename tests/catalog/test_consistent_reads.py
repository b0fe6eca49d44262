"""All queries of a plan read one state of the catalog, also those in the catalog's own SQL."""

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from ducklake_orch import DuckLake
from ducklake_orch.catalog.search import planning
from tests.support.backends import catalogs


@catalogs(shared=True)
def test_a_plan_does_not_see_what_is_committed_after_its_first_query(lake: DuckLake) -> None:
    def write() -> None:
        lake.write(pa.table({"k": [1]}), "t", mode="append")

    write()
    with planning(lake.config, "Reading twice", reads=True) as metadata, ThreadPoolExecutor() as pool:
        dialect, name = metadata.dialect, "ducklake_snapshot"
        queries = [
            dialect.query(f"select max(snapshot_id) as n from {dialect.table(name)}"),
            f"SELECT max(snapshot_id) FROM {metadata.table_sql(name)}",
        ]
        first = metadata.latest().snapshot_id
        for _ in range(3):
            assert [int(metadata.rows(query)[0][0]) for query in queries] == [first, first]
            pool.submit(write).result()
    assert lake.read("t").num_rows == 4
