"""What the catalog proves about a column of a file, as SQL: from statistics, and from the values of its partition.

Statistics are texts of the type that the column had when they were written. Long strings have bounds that no row needs
to have; what is missing is unknown, and so is what was never measured. A partition value is true of every row.
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


def family(kind: str) -> str | None:
    """Return which types a type of DuckDB can be compared with so that casting keeps the order; None: not even itself.

    Blobs, times with a zone and intervals are never judged by bounds; JSON has many texts for one value.
    """
    if kind in _NUMBERS or kind.startswith("DECIMAL"):
        return "number"
    return "moment" if kind in _TIMES else _ALONE.get(kind)


@dataclass
class Facts:
    """The columns that somebody wants to know about, and the SQL that tells.

    Every column of a file gets the SQL columns `low_<id>`, `high_<id>` (bounds of its values, NULL when unknown; NaN is
    the highest), `null_<id>`, `value_<id>` (whether a row may be NULL, or may not be) and, where partitions have them,
    `bucket_<id>` of `buckets_<id>`, `month_<id>`, `day_<id>`, `hour_<id>`.

    Attributes:
        specs: Every partition spec that a file of the table can have.
        types: The types that a column has had, by its id.
        leaves: The columns in use.
    """

    specs: Sequence[PartitionSpec]
    types: Mapping[int, Sequence[str]]
    leaves: dict[int, ColumnDef] = field(default_factory=dict)

    def use(self, leaf: ColumnDef) -> int:
        """Have the columns about a column made; return its id."""
        self.leaves[leaf.column_id] = leaf
        return leaf.column_id

    def has(self, transform: str, leaf: ColumnDef) -> bool:
        """Whether files can be partitioned by a transform of a column whose values still mean the same."""
        return (
            any(
                one.column_id == leaf.column_id and one.transform.startswith(transform)
                for spec in self.specs
                for one in spec.fields
            )
            and len(set(self.types[leaf.column_id])) == 1
        )

    def statistics_sql(self, table: str, table_id: int) -> str | None:
        """Return the query for the statistics in use, one row for each file, in one pass over the table."""
        if not self.leaves:
            return None
        names = {"min": "min_value", "max": "max_value", "values": "value_count", "nulls": "null_count"}
        names["nan"] = "contains_nan"
        columns = [
            f"any_value({name}) FILTER (column_id = {column_id}) AS {short}_{column_id}"
            for column_id in self.leaves
            for short, name in names.items()
        ]
        ids = ", ".join(map(str, self.leaves))
        return (
            f"SELECT data_file_id, {', '.join(columns)} FROM {table}"
            f" WHERE table_id = {table_id} AND column_id IN ({ids}) GROUP BY data_file_id"
        )

    def columns_sql(self) -> list[str]:
        """Return the columns that tell, over files joined with their statistics and partition values."""
        return [sql for leaf in self.leaves.values() for sql in self._leaf(leaf)]

    def _leaf(self, leaf: ColumnDef) -> list[str]:
        kind, n = duckdb_type(leaf), leaf.column_id
        parts = {spec.partition_id: _Part.of(spec, leaf, self) for spec in self.specs}

        def of_partition(name: str) -> list[str]:
            found = {key: getattr(part, name) for key, part in parts.items() if getattr(part, name) is not None}
            cases = " ".join(f"WHEN {key} THEN {sql}" for key, sql in found.items())
            return [f"CASE partition_id {cases} END"] if found else []

        low, high = of_partition("low"), of_partition("high")
        if family(kind):
            low.append(self.typed(f"min_{n}", leaf, "least"))
            most = self.typed(f"max_{n}", leaf, "greatest")
            if kind in _FLOATS:  # NaN counts as the highest of all numbers, and may be there unless somebody looked
                most = f"CASE WHEN NOT CAST(nan_{n} AS BOOLEAN) THEN {most} ELSE 'nan' END"
            high.append(most)
        else:
            low, high = ["NULL"], ["NULL"]
        # Nothing counted means nothing measured. Some writers count NULLs among the values.
        proofs = {
            "null": [f"nulls_{n} = 0 AND values_{n} > 0", *of_partition("no_null")],
            "value": [f"nulls_{n} >= record_count", *of_partition("no_value")],
        }
        columns = [f"greatest({', '.join(low)}) AS low_{n}", f"least({', '.join(high)}) AS high_{n}"]
        columns += [
            f"NOT ({' OR '.join(f'coalesce({sql}, false)' for sql in some)}) AS {name}_{n}"
            for name, some in proofs.items()
        ]
        extra = {name: of_partition(name) for name in ("bucket", "buckets", "month", "day", "hour")}
        return columns + [f"{sql} AS {name}_{n}" for name, some in extra.items() for sql in some]

    def typed(self, text: str, leaf: ColumnDef, outer: str) -> str:
        """Return a text of the catalog as a value of a column, on the safe side.

        The text may be of an earlier type: 0.1 as a FLOAT is not 0.1 as a DOUBLE.
        """
        kind = duckdb_type(leaf)
        ways = [f"TRY_CAST({text} AS {kind})"]
        ways += [f"TRY_CAST(TRY_CAST({text} AS {one}) AS {kind})" for one in self.types[leaf.column_id] if one != kind]
        return f"{outer}({', '.join(ways)})" if len(ways) > 1 else ways[0]


@dataclass(frozen=True)
class _Part:
    """What one partition spec proves about a column; None where it proves nothing."""

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
        """Read a spec's keys for a column; `part_0` and `has_0` are the first key's value and whether it is there."""
        keys = {one.transform: n for n, one in enumerate(spec.fields) if one.column_id == leaf.column_id}
        if not keys:
            return cls()
        kind, found = duckdb_type(leaf), dict[str, str]()
        found["no_null"] = " OR ".join(f"part_{n} IS NOT NULL" for n in keys.values())
        # NULL is also the year of a moment in infinity.
        empty = [f"has_{n} AND part_{n} IS NULL" for key, n in keys.items() if key not in _UNITS]
        if empty:
            found["no_value"] = " OR ".join(empty)
        if "identity" in keys and family(kind):
            value = f"part_{keys['identity']}"
            found |= {"low": facts.typed(value, leaf, "least"), "high": facts.typed(value, leaf, "greatest")}
        elif "year" in keys and kind in _TIMES:
            low, high = _span({unit: f"TRY_CAST(part_{n} AS BIGINT)" for unit, n in keys.items()}, kind)
            found |= {"low": low, "high": high}
        for transform, n in keys.items():
            if transform.startswith("bucket("):
                found |= {"bucket": f"TRY_CAST(part_{n} AS BIGINT)", "buckets": transform[len("bucket(") : -1]}
            elif transform in _UNITS[1:]:
                found[transform] = f"TRY_CAST(part_{n} AS BIGINT)"
        return cls(**found)


def _span(parts: Mapping[str, str], kind: str) -> tuple[str, str]:
    """Return the first and the last moment of a year, or of a month, day or hour in it."""
    units = []
    for unit in _UNITS:
        if unit not in parts:
            break  # a day without its month says nothing about the order
        units.append(unit)
    numbers = [parts[unit] if unit in units else least for unit, least in zip(_UNITS, "0110", strict=True)]
    first = f"TRY(make_timestamp({', '.join(numbers)}, 0, 0))"
    after = f"TRY({first} + INTERVAL 1 {units[-1].upper()})"
    if kind == _ZONED:
        # The parts are those of the writer's zone, wherever that was.
        return f"CAST({first} - INTERVAL 1 DAY AS {kind})", f"CAST({after} + INTERVAL 1 DAY AS {kind})"
    # Nobody can subtract a nanosecond: there the first moment after stands for the last within.
    last = after if kind == "TIMESTAMP_NS" else f"{after} - INTERVAL 1 {_STEPS.get(kind, 'MICROSECOND')}"
    return f"TRY_CAST({first} AS {kind})", f"TRY_CAST({last} AS {kind})"


def partition_values_sql(table: str, table_id: int, specs: Sequence[PartitionSpec]) -> tuple[str, int]:
    """Return the query for partition values, one row for each file, and how many values a row has."""
    keys = max((len(spec.fields) for spec in specs), default=0)
    columns = []
    for n in range(keys):
        mine = f"FILTER (partition_key_index = {n})"
        columns += [f"any_value(partition_value) {mine} AS part_{n}", f"count(*) {mine} = 1 AS has_{n}"]
    select = ", ".join(["data_file_id", *columns])
    return f"SELECT {select} FROM {table} WHERE table_id = {table_id} GROUP BY data_file_id", keys
