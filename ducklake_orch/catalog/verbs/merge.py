"""`lake.merge`: match the rows of a table with source rows by keys, and change, delete or insert rows."""

from dataclasses import replace

import duckdb

from ducklake_orch.catalog.search import planning
from ducklake_orch.catalog.verbs.delete_insert import DeleteInsert
from ducklake_orch.catalog.verbs.history import History, resolved
from ducklake_orch.catalog.verbs.keyed_verb import KeyedVerb
from ducklake_orch.catalog.verbs.merge_request import (
    DeleteInsertRequest,
    HistoryRequest,
    InsertOnlyRequest,
    KeyedRequest,
    UpsertRequest,
)
from ducklake_orch.catalog.verbs.merge_source import MergeSource, Spool
from ducklake_orch.catalog.verbs.row_change import change_rows
from ducklake_orch.catalog.verbs.row_source import ArrowRows
from ducklake_orch.catalog.verbs.upsert import Upsert
from ducklake_orch.catalog.verbs.write import write_table
from ducklake_orch.catalog.verbs.write_request import WriteRequest
from ducklake_orch.catalog.writing import Workers
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.exactly_once import refuse_managed
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.errors import ObjectExistsError
from ducklake_orch.results import WriteResult


def merge_rows(config: LakeConfig, rows: Spool, request: KeyedRequest, workers: Workers | None = None) -> WriteResult:
    """Merge source rows into a table; create the table if it does not exist.

    Args:
        config: The lake.
        rows: The source rows; they are read once.
        request: Target table and merge options, in the class of the strategy.
        workers: Matches rows and writes changed rows on other machines; None to do both in this process.
    """
    refuse_managed(config, f"merging into `{request.table}`")
    with working_connection(config, apart=True) as con:
        source, verb = _source_and_verb(con, rows, request, workers)
        if not _exists(config, request):
            try:
                return _create_table(config, source, request, verb)
            except ObjectExistsError:
                pass  # a concurrent writer created the table first
        return change_rows(config, con, request, verb, verb, workers)


def _source_and_verb(
    con: duckdb.DuckDBPyConnection, rows: Spool, request: KeyedRequest, workers: Workers | None
) -> tuple[MergeSource, KeyedVerb]:
    """Spool the source rows, and return them with the verb of the strategy."""
    match request:
        case UpsertRequest():
            source = MergeSource(con, rows, request, request.keys)
            return source, Upsert(con, source, request, workers)
        case InsertOnlyRequest():
            return _source_and_verb(con, rows, request.as_upsert(), workers)
        case DeleteInsertRequest():
            keys = [*request.keys, *(request.merge_key or ())]
            source = MergeSource(con, rows, request, keys, request.keys or keys, repeats=True)
            return source, DeleteInsert(con, source, request, workers)
        case HistoryRequest():
            history, matched, unique = resolved(request, rows.types(con))
            source = MergeSource(con, rows, history, matched, unique)
            return source, History(con, source, history, workers)
    raise AssertionError("every strategy has its own class")


def _exists(config: LakeConfig, request: KeyedRequest) -> bool:
    with planning(config, f"Looking for `{request.table}`") as metadata:
        return metadata.find_table(request.table, metadata.latest().snapshot_id) is not None


def _create_table(config: LakeConfig, source: MergeSource, request: KeyedRequest, verb: KeyedVerb) -> WriteResult:
    """Create the table with the source rows to insert."""
    source.check_rows()
    creation = WriteRequest(
        table=request.table,
        mode="error",
        partition_by=request.partition_by,
        sort_by=request.sort_by,
        idempotency_key=request.idempotency_key,
        commit=request.commit,
    )
    with source.again(verb.first_rows()) as reader:
        return replace(write_table(config, ArrowRows(reader), creation), mode="merge")
