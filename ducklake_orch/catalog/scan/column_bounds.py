"""Build the SQL for what the catalog proves about a column of a file, from statistics and partition values.

Statistics are texts in the type that the column had when they were written. Bounds of long strings may be values that
no row has. Missing statistics are unknown, and so are those that were never measured. A partition value holds for every
row of the file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ducklake_orch.catalog.metadata import ColumnDef, PartitionSpec, duckdb_type

_FLOATS = ("FLOAT", "DOUBLE")
_NUMBERS = (
    *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
    *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT", *_FLOATS),
)
_ZONED = "TIMESTAMP WITH TIME ZONE"
_TIMES = ("DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", _ZONED)
_ALONE = {"BOOLEAN": "truth", "VARCHAR": "text", "TIME": "time", "UUID": "uuid"}
_UNITS = ("year", "month", "day", "hour")
_STEPS = {"TIMESTAMP_S": "SECOND", "TIMESTAMP_MS": "MILLISECOND"}
# The statistics of a column in a file, in the catalog and in DuckDB's types, by the first part of their names here.
STATISTICS = {
    "min": ("min_value", "VARCHAR"),
    "max": ("max_value", "VARCHAR"),
    "values": ("value_count", "BIGINT"),
    "nulls": ("null_count", "BIGINT"),
    "nan": ("contains_nan", "BOOLEAN"),
}


def family(kind: str) -> str | None:
    """Return the family of a DuckDB type: types whose values keep their order when they are cast to compare them.

    Types without a family (None) are never pruned by bounds: blobs, times with a zone, intervals, and JSON, which has
    many texts for one value.
    """
    if kind in _NUMBERS or kind.startswith("DECIMAL"):
        return "number"
    return "moment" if kind in _TIMES else _ALONE.get(kind)


@dataclass
class Facts:
    """The columns that a condition uses, and the SQL for what the catalog knows about them in a file.

    For each of them, a file gets the SQL columns `low_<id>` and `high_<id>` (bounds of its values, NULL if unknown; NaN
    is the highest value), `null_<id>` (whether a row may be NULL) and `value_<id>` (whether a row may be other than
    NULL). If partition specs have them, it also gets `bucket_<id>` of `buckets_<id>`, `month_<id>`, `day_<id>` and
    `hour_<id>`.

    Attributes:
        specs: Every partition spec that a file of the table can have.
        types: All types that each column has had, by column id.
        leaves: The columns in use, by column id.
    """

    specs: Sequence[PartitionSpec]
    types: Mapping[int, Sequence[str]]
    leaves: dict[int, ColumnDef] = field(default_factory=dict)

    def use(self, leaf: ColumnDef) -> int:
        """Register a column, so that files get its SQL columns; return its id."""
        self.leaves[leaf.column_id] = leaf
        return leaf.column_id

    def has(self, transform: str, leaf: ColumnDef) -> bool:
        """Return whether files may be partitioned by a transform of a column that has had only one type."""
        return (
            any(
                partition_field.column_id == leaf.column_id and partition_field.transform.startswith(transform)
                for spec in self.specs
                for partition_field in spec.fields
            )
            and len(set(self.types[leaf.column_id])) == 1
        )

    def uses(self) -> str | None:
        """Return the condition on statistics that they are of a column in use; None if no column is."""
        return f"column_id IN ({', '.join(map(str, self.leaves))})" if self.leaves else None

    def statistics_sql(self, rows: str) -> str:
        """Return the query for the statistics of the columns in use, one row per file, in one pass over their rows."""
        columns = [
            f"any_value({name}) FILTER (column_id = {column_id}) AS {short}_{column_id}"
            for column_id in self.leaves
            for short, (name, _) in STATISTICS.items()
        ]
        return f"SELECT data_file_id, {', '.join(columns)} FROM {rows} GROUP BY data_file_id"

    def columns_sql(self) -> list[str]:
        """Return the SQL columns of all columns in use, over files joined with statistics and partition values."""
        return [sql for leaf in self.leaves.values() for sql in self._leaf(leaf)]

    def _leaf(self, leaf: ColumnDef) -> list[str]:
        kind, n = duckdb_type(leaf), leaf.column_id
        parts = {spec.partition_id: _Part.of(spec, leaf, self) for spec in self.specs}

        def of_partition(name: str) -> list[str]:
            values = {key: getattr(part, name) for key, part in parts.items() if getattr(part, name) is not None}
            cases = " ".join(f"WHEN {key} THEN {sql}" for key, sql in values.items())
            return [f"CASE partition_id {cases} END"] if values else []

        low, high = of_partition("low"), of_partition("high")
        if family(kind):
            low.append(self.typed(f"min_{n}", leaf, "least"))
            most = self.typed(f"max_{n}", leaf, "greatest")
            if kind in _FLOATS:  # NaN is the highest value, and a file may hold it unless the statistics say otherwise
                most = f"CASE WHEN NOT CAST(nan_{n} AS BOOLEAN) THEN {most} ELSE 'nan' END"
            high.append(most)
        else:
            low, high = ["NULL"], ["NULL"]
        # A count of zero values and zero NULLs means that nothing was measured. Some writers count NULLs as values, and
        # the engine does so for variants.
        counted = leaf.type != "variant"
        proofs = {
            "null": [f"nulls_{n} = 0 AND values_{n} > 0" if counted else "false", *of_partition("no_null")],
            "value": [f"nulls_{n} >= record_count" if counted else "false", *of_partition("no_value")],
        }
        columns = [f"greatest({', '.join(low)}) AS low_{n}", f"least({', '.join(high)}) AS high_{n}"]
        columns += [
            f"NOT ({' OR '.join(f'coalesce({sql}, false)' for sql in conditions)}) AS {name}_{n}"
            for name, conditions in proofs.items()
        ]
        extra = {name: of_partition(name) for name in ("bucket", "buckets", "month", "day", "hour")}
        return columns + [f"{sql} AS {name}_{n}" for name, conditions in extra.items() for sql in conditions]

    def typed(self, text: str, leaf: ColumnDef, outer: str) -> str:
        """Return the SQL that casts a text of the catalog to a safe bound of a column.

        The text may be of an earlier type of the column, and 0.1 as a FLOAT is not 0.1 as a DOUBLE. So `outer` combines
        the results of casting through every type that the column has had.
        """
        kind = duckdb_type(leaf)
        casts = [f"TRY_CAST({text} AS {kind})"]
        casts += [
            f"TRY_CAST(TRY_CAST({text} AS {past_type}) AS {kind})"
            for past_type in self.types[leaf.column_id]
            if past_type != kind
        ]
        return f"{outer}({', '.join(casts)})" if len(casts) > 1 else casts[0]


@dataclass(frozen=True)
class _Part:
    """SQL for the facts that one partition spec proves about a column; None for a fact that it does not prove."""

    low: str | None = None
    high: str | None = None
    no_null: str | None = None
    no_value: str | None = None
    bucket: str | None = None
    buckets: str | None = None
    month: str | None = None
    day: str | None = None
    hour: str | None = None

    @classmethod
    def of(cls, spec: PartitionSpec, leaf: ColumnDef, facts: Facts) -> "_Part":
        """Build the SQL from a spec's keys of a column; `part_0` is the first key's value, `has_0` that it exists."""
        keys = {
            key_field.transform: n for n, key_field in enumerate(spec.fields) if key_field.column_id == leaf.column_id
        }
        if not keys:
            return cls()
        kind, proven = duckdb_type(leaf), dict[str, str]()
        proven["no_null"] = " OR ".join(f"part_{n} IS NOT NULL" for n in keys.values())
        # Keys of time units are left out, because the year of an infinite timestamp is NULL, too.
        units = {*_UNITS, *(f"epoch_{unit}" for unit in _UNITS)}
        empty = [f"has_{n} AND part_{n} IS NULL" for key, n in keys.items() if key not in units]
        if empty:
            proven["no_value"] = " OR ".join(empty)
        if "identity" in keys and family(kind):
            value = f"part_{keys['identity']}"
            proven |= {"low": facts.typed(value, leaf, "least"), "high": facts.typed(value, leaf, "greatest")}
        elif "year" in keys and kind in _TIMES:
            low, high = _span({unit: f"TRY_CAST(part_{n} AS BIGINT)" for unit, n in keys.items()}, kind)
            proven |= {"low": low, "high": high}
        for transform, n in keys.items():
            if transform.startswith("bucket("):
                proven |= {"bucket": f"TRY_CAST(part_{n} AS BIGINT)", "buckets": transform[len("bucket(") : -1]}
            elif transform in _UNITS[1:]:
                proven[transform] = f"TRY_CAST(part_{n} AS BIGINT)"
        return cls(**proven)


def _span(parts: Mapping[str, str], kind: str) -> tuple[str, str]:
    """Return the SQL of the first and the last moment of a year, or of a month, day or hour in that year."""
    units = []
    for unit in _UNITS:
        if unit not in parts:
            break  # a day without its month gives no bounds
        units.append(unit)
    numbers = [parts[unit] if unit in units else least for unit, least in zip(_UNITS, "0110", strict=True)]
    first = f"TRY(make_timestamp({', '.join(numbers)}, 0, 0))"
    after = f"TRY({first} + INTERVAL 1 {units[-1].upper()})"
    if kind == _ZONED:
        # The parts are in the writer's time zone, which is unknown, so the bounds are a day wider.
        return f"CAST({first} - INTERVAL 1 DAY AS {kind})", f"CAST({after} + INTERVAL 1 DAY AS {kind})"
    # DuckDB cannot subtract a nanosecond, so the upper bound of TIMESTAMP_NS is the first moment after the span.
    last = after if kind == "TIMESTAMP_NS" else f"{after} - INTERVAL 1 {_STEPS.get(kind, 'MICROSECOND')}"
    return f"TRY_CAST({first} AS {kind})", f"TRY_CAST({last} AS {kind})"


def partition_values_sql(rows: str, specs: Sequence[PartitionSpec]) -> tuple[str, int]:
    """Return the query for partition values, one row per file, and the number of values in a row."""
    keys = max((len(spec.fields) for spec in specs), default=0)
    columns = []
    for n in range(keys):
        of_key = f"FILTER (partition_key_index = {n})"
        columns += [f"any_value(partition_value) {of_key} AS part_{n}", f"count(*) {of_key} = 1 AS has_{n}"]
    select = ", ".join(["data_file_id", *columns])
    return f"SELECT {select} FROM {rows} GROUP BY data_file_id", keys
