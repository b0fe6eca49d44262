"""Rows with an id each, and work that another task does meanwhile."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa


def numbers(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids(table: pa.Table) -> list[int]:
    return sorted(table.column("id").to_pylist())


def elsewhere(work: Callable[[], object]) -> None:
    """Do work as another task would: not in the transaction that is open here."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()
