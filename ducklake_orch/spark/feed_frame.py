"""A change feed as a lazy Spark DataFrame: `changes_frame`.

The feed is planned once from the catalog. Tasks read which row versions the files insert and delete, and Spark matches
the two. Inlined rows are small in number and are read here.
"""

from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from ducklake_orch.catalog.feed import FeedPlan, FeedRequest, commits_table, plan_feed, refuse_own_names
from ducklake_orch.catalog.metadata import Metadata, reading
from ducklake_orch.catalog.parquet import (
    changes_sql,
    events_sql,
    inlined_versions_sql,
    inserts_sql,
    short,
)
from ducklake_orch.catalog.scan import snapshot_of
from ducklake_orch.spark.feed_task import FeedJob, variants_in
from ducklake_orch.spark.native_reader import RETENTION
from ducklake_orch.spark.read_frame import grouped_for_tasks, numbered_pieces, with_comments
from ducklake_orch.spark.ship_code import ship_function
from ducklake_orch.spark.spark_quoting import name_sql
from ducklake_orch.spark.storage_access import refuse_local_secret
from ducklake_orch.spark.task_engine import engine_spec
from ducklake_orch.spark.task_values import packed
from ducklake_orch.spark.types import exported, spark_schema
from ducklake_orch.spark.variants import arrow_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from ducklake_orch.config.lake import LakeConfig
    from ducklake_orch.facade.lake_base import LakeBase


def changes_frame(lake: "LakeBase", spark: "SparkSession", request: FeedRequest) -> "DataFrame":
    """Return the changes as a DataFrame that reads them when it runs."""
    with (
        lake.reading(entering=False) as session,
        reading(session, f"Reading the changes of `{request.table}`") as metadata,
    ):
        plan = plan_feed(metadata, request, snapshot_of(session, metadata))
        refuse_own_names(plan.range.table, plan.span.columns)
        schema = spark_schema(iter(plan.span.columns))  # raises here if Spark cannot hold a type
        inlined = inlined_events(metadata, plan)
    events = _events(spark, lake.config, plan, inlined, _event_schema(schema, plan))
    as_changes = inserts_sql if plan.range.only_inserts else changes_sql
    changes = spark.sql(as_changes("{events}", plan.span.columns), events=events)
    commits = spark.createDataFrame(commits_table(plan.range.commits))
    values = [f"c.{short(column)} AS {name_sql(column.name)}" for column in plan.span.columns]
    columns = ["s.snapshot_id", "s.snapshot_time", "c.row_id AS rowid", "c.kind AS change_type"]
    columns += ["s.author", "s.idempotency_key", *values]
    # The commits are few bytes compared with their rows, however many there are.
    joined = "SELECT /*+ BROADCAST(s) */ {0} FROM {{changes}} c JOIN {{commits}} s ON s.snapshot_id = c.snapshot"
    frame = spark.sql(joined.format(", ".join(columns)), changes=changes, commits=commits)
    return with_comments(frame, schema)


def feed_job(plan: FeedPlan) -> FeedJob:
    """Return the facts that all tasks of a feed need."""
    return FeedJob(str(plan.range.table), plan.span, plan.mappings, plan.layouts, RETENTION)


def _event_schema(schema: "StructType", plan: FeedPlan) -> "StructType":
    """Return the schema of the tasks' output: the columns of `events_sql`."""
    from pyspark.sql import types

    own = [("came", types.BooleanType()), ("snapshot", types.LongType()), ("row_id", types.LongType())]
    fields = [types.StructField(name, kind) for name, kind in [*own, ("same", types.StringType())]]
    pairs = zip(plan.span.columns, schema, strict=True)
    return types.StructType([*fields, *(types.StructField(short(column), field.dataType) for column, field in pairs)])


def inlined_events(metadata: Metadata, plan: FeedPlan) -> pa.Table | None:
    """Return the events of inlined rows, in the form of `events_sql`; None if there are none."""
    if not plan.inlined:
        return None
    versions = (inlined_versions_sql(rows, plan.span.needed) for rows in plan.inlined)
    events = " UNION ALL ".join(f"({events_sql(version, plan.span, exported)})" for version in versions)
    return arrow_table(metadata.con.execute(events).to_arrow_table(), variants_in(plan.span))


def _events(
    spark: "SparkSession", config: "LakeConfig", plan: FeedPlan, inlined: pa.Table | None, schema: "StructType"
) -> "DataFrame":
    frames = []
    if plan.files:
        refuse_local_secret(config)
        job = feed_job(plan)
        pieces = [packed(lives) for lives in grouped_for_tasks(plan.files, lambda life: life.file)]
        read = ship_function("ducklake_orch.spark.feed_task:read_events", engine_spec(config), job, pieces)
        size = sum(file.file.file_size for file in plan.files)
        frames.append(numbered_pieces(spark, len(pieces), size).mapInArrow(read, schema))
    if inlined is not None or not frames:
        frames.append(spark.createDataFrame([] if inlined is None else inlined, schema))
    return reduce(lambda left, right: left.unionAll(right), frames)
