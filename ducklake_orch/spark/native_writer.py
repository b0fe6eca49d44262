"""Write a DataFrame with Spark's own Parquet writer, where it is faster than DuckDB in tasks and equally correct.

Spark's writer supports no field ids inside lists and maps, no partition folders in DuckLake's layout and no DuckDB
expressions: tables with any of these are written by DuckDB. The settings that it needs are set in a copy of the user's
session, so the session itself does not change. The entry points are `reason_against` and `write_natively`.
"""

import shutil
from pathlib import Path
from typing import Any

from ducklake_orch.catalog.ingest import inspect_files
from ducklake_orch.catalog.metadata import ColumnDef, NewFile, TableDef, duckdb_type
from ducklake_orch.catalog.verbs import Job
from ducklake_orch.engine.quoting import folded
from ducklake_orch.errors import DuckLakeOrchError, StorageError
from ducklake_orch.spark.session import has_a_copy, is_local, with_settings
from ducklake_orch.spark.spark_quoting import name_sql
from ducklake_orch.spark.types import spark_type, stored_type

# Types of columns that Spark writes as DuckDB would.
_SAME = {"boolean", "int8", "int16", "int32", "int64", "float32", "float64", "date", "timestamp", "timestamptz"}
_SAME |= {"varchar", "blob"}
# DuckDB's codec names in Spark's terms; no jar of Spark has brotli.
_CODECS = {"uncompressed": "none"} | {name: name for name in ("snappy", "zstd", "gzip", "lz4_raw")}
_FEW_BYTES = 16 * 1024 * 1024
# At most this many rows pass through the driver, if the estimate of their bytes is small as well.
_FEW_ROWS = 1000
_FIELD_ID = "parquet.field.id"
_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
    ),
    "spark.sql.parquet.output.committer.class": "org.apache.parquet.hadoop.ParquetOutputCommitter",
}
_OPTIONS = {
    # The folder must hold data files only.
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "parquet.summary.metadata.level": "NONE",
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}


def reason_against(frame: Any, columns: list[tuple[str, str]], job: Job) -> str | None:
    """Return why Spark's own writer cannot be used for a write, None if it can.

    Args:
        frame: The DataFrame.
        columns: The DataFrame's columns and their types in DuckDB.
        job: The write.
    """
    table = job.table
    if not hasattr(frame, "_jdf"):
        return "Spark Connect cannot copy a session"
    if not is_local(frame.sparkSession) or "://" in table.folder:
        return "the executors may not reach the files by the same path"
    if not has_a_copy(frame):
        return "it is observed, or its session uses another catalog: a copy of the session would ignore either"
    if job.few:
        return "the rows may be inlined in the catalog"
    if job.where is not None:
        return "DuckDB has to check the rows"
    if has_user_defined_types(frame.schema):
        return "the data have a user-defined type"
    return _against_layout(table) or _against_columns(table, columns)


def expects_few_bytes(frame: Any) -> bool:
    """Whether Spark expects so few bytes that DuckDB, in running workers, finishes before Spark has started."""
    return int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())) < _FEW_BYTES


def has_user_defined_types(kind: Any) -> bool:
    """Whether a type is user-defined or contains such a type."""
    parts = [getattr(kind, name, None) for name in ("elementType", "keyType", "valueType")]
    parts += [field.dataType for field in getattr(kind, "fields", ())]
    return stored_type(kind) is not kind or any(has_user_defined_types(part) for part in parts if part is not None)


def proves_few_rows(frame: Any) -> bool:
    """Whether the plan proves that there are few rows: its upper bound is certain, its estimate of bytes is not.

    Spark estimates the output of `explode` or of a Python function to be as large as the input.
    """
    bound = frame._jdf.queryExecution().optimizedPlan().maxRows()
    return bool(bound.isDefined()) and int(bound.get()) <= _FEW_ROWS


def _against_layout(table: TableDef) -> str | None:
    if table.encrypted:
        return "the lake is encrypted"
    if table.partition:
        return "the table is partitioned"
    if table.sort and table.options.get("sort_on_insert") != "false":
        return "the table is sorted by DuckDB expressions"
    if set(table.options) & {"parquet_version", "parquet_row_group_size", "parquet_row_group_size_bytes"}:
        return "the table has options for its row groups"
    if "target_file_size" in table.options:
        return "the table has a target for the size of its files"
    if table.options.get("parquet_compression", "zstd") not in _CODECS:
        return "Spark does not support the table's compression"
    return None


def _against_columns(table: TableDef, columns: list[tuple[str, str]]) -> str | None:
    given = {folded(name): kind for name, kind in columns}
    for column in table.columns:
        kind = given.pop(folded(column.name), None)
        if kind is None and column.default is not None:
            return f"`{column.name}` gets its default"
        if not _same(column):
            return f"`{column.name}` is {duckdb_type(column)}"
        if not column.nullable:
            return f"`{column.name}` is NOT NULL"
        if kind is not None and kind != duckdb_type(column):
            return f"`{column.name}` is {kind} in the data"
    return None


def _same(column: ColumnDef) -> bool:
    if column.type == "struct":
        return all(_same(child) and child.nullable for child in column.children)
    return column.type in _SAME or column.type.startswith("decimal(")


def write_natively(frame: Any, job: Job) -> list[NewFile]:
    """Write a DataFrame into its own folder below the table's, and describe the files.

    Raises:
        Exception: Spark's own error, when its job fails.
    """
    folder = Path(job.table.folder) / f"{job.table.file_prefix(job.write_id)}-spark"
    try:
        # Hadoop takes the path as it is, without percent-encoding.
        _writer(frame, job.table).parquet(f"file://{folder}")
        if not folder.is_dir():
            raise StorageError(f"Spark did not write its files to {folder}.", remedy='Use `engine="duckdb"`.')
        files = _described(job, folder)
        _remove_others(folder, {file.path for file in files})
        return files
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _writer(frame: Any, table: TableDef) -> Any:
    """Return Spark's writer for the rows in the table's columns."""
    writer = with_settings(_fitted(frame, table), _SETTINGS)._jdf.write().mode("append")
    for name, value in (_OPTIONS | _parquet_options(table)).items():
        writer = writer.option(name, value)
    return writer


def _fitted(frame: Any, table: TableDef) -> Any:
    """Return the rows in the table's columns, with the field ids of columns and struct fields.

    Spark's optimizer drops the ids of aliases that it considers redundant. It keeps the ids of an alias of the data's
    own column, and those in the type of a cast.
    """
    from pyspark.sql import functions

    names = {folded(name): name for name in frame.columns}
    values = []
    for field in _schema(table):
        name = names.get(folded(field.name))
        value = functions.lit(None) if name is None else functions.col(name_sql(name))
        if name is None or field.dataType.typeName() == "struct":
            value = value.cast(field.dataType)
        values.append(value.alias(field.name, metadata=field.metadata))
    return frame.select(*values)


def _parquet_options(table: TableDef) -> dict[str, str]:
    options = {"compression": _CODECS[table.options.get("parquet_compression", "zstd")]}
    if (level := table.options.get("parquet_compression_level")) is not None:
        options["parquet.compression.codec.zstd.level"] = str(int(level))
    return options


def _schema(table: TableDef) -> Any:
    from pyspark.sql.types import StructType

    return StructType([_field(column) for column in table.columns])


def _field(column: ColumnDef) -> Any:
    from pyspark.sql.types import StructField, StructType

    if column.children:
        kind: Any = StructType([_field(child) for child in column.children])
    else:
        kind = spark_type(column)
    return StructField(column.name, kind, True, {_FIELD_ID: column.column_id})


def _described(job: Job, folder: Path) -> list[NewFile]:
    paths = sorted(str(path) for path in folder.glob("*.parquet"))
    if not paths:
        return []
    with job.working() as con:
        files = inspect_files(con, job.config, job.table, (), own=paths)
    if wrong := next((file for file in files if file.mapping is not None), None):
        raise DuckLakeOrchError(f"Spark wrote {wrong.path} without field ids.", remedy='Write with `engine="duckdb"`.')
    return files


def _remove_others(folder: Path, keep: set[str]) -> None:
    """Delete the other files that Spark leaves in the folder, including data files without rows."""
    for path in folder.rglob("*"):
        if path.is_file() and str(path) not in keep:
            path.unlink(missing_ok=True)
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
