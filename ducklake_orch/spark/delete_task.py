"""Executor side of deletes: writes the positions of matching rows, and delete files from them.

Each task returns counts and paths; the driver never receives positions.
"""

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

from ducklake_orch.catalog.metadata import TableDef
from ducklake_orch.catalog.writing import Loss, write_delete_files
from ducklake_orch.engine.quoting import literal
from ducklake_orch.spark.read_task import Piece, ReadJob, positions_sql, stored_in, translated_missing_file
from ducklake_orch.spark.task_engine import EngineSpec, open_engine
from ducklake_orch.spark.task_values import result_row, task_numbers, unpacked

_FOUND = "__ducklake_orch_found"


def find_rows(
    spec: EngineSpec, job: ReadJob, pieces: Sequence[bytes], prefix: str, numbers: Iterator[Any]
) -> Iterator[Any]:
    """Write the positions of matching rows; yield the path and the count for each file with matches, by its id.

    Args:
        spec: How to reach the storage.
        job: The files, columns and condition to read.
        pieces: All pieces.
        prefix: The prefix of the paths of the position files.
        numbers: Batches with the numbers of this task's pieces.
    """
    for number in task_numbers(numbers):
        piece: Piece = unpacked(pieces[number])
        matches = {}
        with open_engine(spec) as con:
            for file in piece.files:
                where = f"table `{job.table}` at snapshot {job.snapshot}"
                with translated_missing_file(spec, where, file.path, job.remedy):
                    deleted = piece.inlined_deletes.get(file.data_file_id, ())
                    query = positions_sql(job, file, stored_in(con, job.layouts, file), deleted)
                    con.execute(f"CREATE OR REPLACE TEMP TABLE {_FOUND} AS {query}")
                ((count,),) = con.execute(f"SELECT count(*) FROM {_FOUND}").fetchall()
                if count:
                    path = f"{prefix}{uuid4()}.parquet"
                    con.execute(f"COPY (FROM {_FOUND} ORDER BY pos) TO {literal(path)} (FORMAT parquet)")
                    matches[file.data_file_id] = (path, count)
        yield result_row(matches)


def write_deletes(
    spec: EngineSpec, table: TableDef, write_id: str, parts: Sequence[bytes], numbers: Iterator[Any]
) -> Iterator[Any]:
    """Write a delete file for each data file of this task's parts; yield them as they are to be committed."""
    for number in task_numbers(numbers):
        losses: list[Loss] = unpacked(parts[number])
        with open_engine(spec) as con:
            yield result_row(write_delete_files(con, table, write_id, losses))
