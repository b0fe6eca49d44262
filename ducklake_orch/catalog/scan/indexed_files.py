"""Find the files that can match by their partition values, through the indexes of `lake.create_indexes`.

The catalog lists the different values of each partition key, one look-up in the index for each. DuckDB decides which of
them a condition admits, with the same SQL that decides about files. Only the files with these values are then read from
the catalog, with their statistics, and judged. So the result is the same as without indexes.
"""

from collections.abc import Mapping, Sequence, Set
from itertools import groupby

import duckdb

from ducklake_orch.catalog.metadata import (
    INDEXED_LENGTH,
    PartitionSpec,
    TableHistory,
    has_indexes,
    indexed_value,
    maybe_int,
    text,
)
from ducklake_orch.catalog.scan.column_bounds import STATISTICS, Facts
from ducklake_orch.engine.quoting import literal

# Beyond these numbers, reading all files is about as fast.
_MOST_VALUES = 10_000
_MOST_COMBINATIONS = 100_000
_LARGEST_SHARE = 0.25
# The values of a key, None for NULL, by the number of the key in its spec.
Values = Mapping[int, Sequence[str | None]]


def ids_by_index(history: TableHistory, facts: Facts, condition: str) -> str | None:
    """Return the query for the ids of all files that can match, in the catalog's own SQL; None to read all files.

    Args:
        history: The table and its past.
        facts: The columns that the condition uses.
        condition: The SQL for whether a file may match.
    """
    used = {spec: [n for n, key in enumerate(spec.fields) if key.column_id in facts.leaves] for spec in history.specs}
    if not any(used.values()) or not has_indexes(history.metadata):
        return None
    lookup = _Lookup(history, facts, condition)
    admitted = {spec.partition_id: lookup.admitted(spec, keys) for spec, keys in used.items()}
    if not any(admitted.values()):
        return None
    if not lookup.is_complete({n for values in admitted.values() for n in values}):
        return None
    everything = [partition_id for partition_id, values in admitted.items() if not values]
    return " union all ".join(
        [lookup.files_of_specs(everything), *(lookup.files_with(values) for values in admitted.values() if values)]
    )


class _Lookup:
    def __init__(self, history: TableHistory, facts: Facts, condition: str) -> None:
        self._history = history
        self._facts = facts
        self._condition = condition
        self._of_table = f"table_id = {history.table.table_id}"
        self._keys = max(len(spec.fields) for spec in history.specs)
        self._known: dict[int, Sequence[str | None]] = {}
        self._value = indexed_value(history.metadata.dialect)

    def is_complete(self, keys: Set[int]) -> bool:
        """Return whether the files of all specs with these keys have a value for each; some writers leave some out."""
        metadata = self._history.metadata
        table, values = (
            metadata.dialect.table(name) for name in ("ducklake_data_file", "ducklake_file_partition_value")
        )
        of_specs = self._counts(f"select partition_id, count(*) as n from {table}", "partition_id")
        of_keys = self._counts(f"select partition_key_index, count(*) as n from {values}", "partition_key_index")
        lengths = {spec.partition_id: len(spec.fields) for spec in self._history.specs}
        if not of_specs.keys() <= {None, *lengths}:
            return False
        return all(
            of_keys.get(n, 0)
            == sum(files for spec, files in of_specs.items() if spec is not None and lengths[spec] > n)
            for n in keys
        )

    def _counts(self, select: str, by: str) -> dict[int | None, int]:
        metadata = self._history.metadata
        rows = metadata.rows(metadata.dialect.query(f"{select} where {self._of_table} group by {by}"))
        return {maybe_int(number): int(count) for number, count in rows}

    def admitted(self, spec: PartitionSpec, keys: Sequence[int]) -> Values:
        """Return the values that files of a spec can have, for the keys that rule out most of their values."""
        admitted: dict[int, Sequence[str | None]] = {}
        share = 1.0
        # The keys of a column belong together: a month means little without its year.
        of_column = sorted(keys, key=lambda n: (spec.fields[n].column_id, n))
        for _, group in groupby(of_column, key=lambda n: spec.fields[n].column_id):
            values = {n: self._values(n) for n in group}
            for n, kept in self._admitted(spec, values).items():
                if len(kept) < len(values[n]):
                    admitted[n] = kept
                    share *= len(kept) / len(values[n])
        return admitted if share <= _LARGEST_SHARE else {}

    def _values(self, n: int) -> Sequence[str | None]:
        """Return the different values of a key, cut to the indexed length, and None; nothing if they are too many."""
        if n not in self._known:
            metadata = self._history.metadata
            table = metadata.dialect.table("ducklake_file_partition_value")
            next_value = (
                f"select {self._value} from {table} where {self._of_table} and partition_key_index = {n}"
                f" and partition_value is not null{{after}} order by {self._value} limit 1"
            )
            after = next_value.format(after=f" and {self._value} > v.x")
            rows = metadata.rows(
                metadata.dialect.query(
                    f"with recursive v(x) as (select ({next_value.format(after='')}) as x union all"
                    f" select ({after}) from v where v.x is not null)"
                    f" select x from v where x is not null limit {_MOST_VALUES + 1}"
                )
            )
            self._known[n] = [] if len(rows) > _MOST_VALUES else [None, *(text(row[0]) for row in rows)]
        return self._known[n]

    def _admitted(self, spec: PartitionSpec, values: Values) -> Values:
        """Return the values of keys of one column that occur in a combination that the condition admits."""
        combinations = 1
        for found in values.values():
            combinations *= len(found)
        if not 0 < combinations <= _MOST_COMBINATIONS:
            return {}
        columns = [f"{spec.partition_id} AS partition_id", "1::BIGINT AS record_count"]
        for n in range(self._keys):
            # Unknown statistics and unknown values rule nothing out.
            known = n in values
            columns += [f"{f'v{n}' if known else 'NULL::VARCHAR'} AS part_{n}", f"{str(known).lower()} AS has_{n}"]
        for leaf in self._facts.leaves.values():
            columns += [f"NULL::{kind} AS {name}_{leaf.column_id}" for name, (_, kind) in STATISTICS.items()]
        lists = ", ".join(
            f"(SELECT unnest([{', '.join(map(literal, found))}]::VARCHAR[]) AS v{n})" for n, found in values.items()
        )
        is_cut = " OR ".join(f"coalesce(length(part_{n}) = {INDEXED_LENGTH}, false)" for n in values)
        sql = (
            f"SELECT {', '.join(f'list(DISTINCT part_{n})' for n in values)}"
            f" FROM (SELECT *, {', '.join(self._facts.columns_sql())} FROM (SELECT {', '.join(columns)} FROM {lists}))"
            f" WHERE {self._condition} OR {is_cut}"
        )
        try:
            row = self._history.metadata.con.execute(sql).fetchone()
        except (duckdb.ConversionException, duckdb.OutOfRangeException):
            return {}  # a combination that no file has need not fit the types of the condition
        return {n: kept or [] for n, kept in zip(values, row or (), strict=True)}

    def files_of_specs(self, specs: Sequence[int]) -> str:
        """Return the query for the files without partition values and those of some specs."""
        table = self._history.metadata.dialect.table("ducklake_data_file")
        of_specs = f" or partition_id in ({', '.join(map(str, specs))})" if specs else ""
        return f"select data_file_id from {table} where {self._of_table} and (partition_id is null{of_specs})"

    def files_with(self, values: Values) -> str:
        """Return the query for the files that have one of the given values for each key."""
        dialect = self._history.metadata.dialect
        table = dialect.table("ducklake_file_partition_value")
        queries = []
        for n, kept in values.items():
            select = f"select data_file_id from {table} where {self._of_table} and partition_key_index = {n} and"
            texts = ", ".join(dialect.text_literal(value) for value in kept if value is not None)
            parts = [f"{select} {self._value} in ({texts})"] if texts else []
            parts += [f"{select} partition_value is null"] if None in kept else []
            of_key = " union all ".join(parts or [f"{select} 1 = 0"])
            queries.append(f"select data_file_id from ({of_key}) q")
        return f"select data_file_id from ({' intersect '.join(queries)}) q"
