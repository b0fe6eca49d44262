"""Reads the metadata tables of a lake in a form that can be compared with those of another lake."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from ducklake_orch import DuckLake

Contents = dict[str, list[dict[str, Any]]]
# A function that removes an intended difference from the contents before, of the engine and of ducklake-orch.
Difference = Callable[[Contents, Contents, Contents], None]


TABLES = (
    *(
        "ducklake_snapshot",
        "ducklake_snapshot_changes",
        "ducklake_schema_versions",
        "ducklake_schema",
        "ducklake_table",
    ),
    *("ducklake_column", "ducklake_column_tag", "ducklake_tag", "ducklake_inlined_data_tables"),
    *("ducklake_partition_info", "ducklake_partition_column", "ducklake_sort_info", "ducklake_sort_expression"),
    *("ducklake_data_file", "ducklake_delete_file", "ducklake_file_partition_value", "ducklake_file_column_stats"),
    *("ducklake_file_variant_stats", "ducklake_table_stats", "ducklake_table_column_stats"),
    *("ducklake_column_mapping", "ducklake_name_mapping", "ducklake_files_scheduled_for_deletion"),
)
DIFFERENT: Mapping[tuple[str, str], str] = {
    ("ducklake_snapshot", "snapshot_time"): "two commits are not made at one time",
    ("ducklake_snapshot_changes", "commit_extra_info"): "holds the id of the write",
    ("ducklake_schema", "schema_uuid"): "random",
    ("ducklake_table", "table_uuid"): "random",
    ("ducklake_delete_file", "path"): "random",
    ("ducklake_delete_file", "file_size_bytes"): "holds the random name of the data file",
    ("ducklake_delete_file", "footer_size"): "holds the random name of the data file",
}


# --- comparison -------------------------------------------------------------------------------------------------------


def contents(lake: DuckLake) -> Contents:
    """Return the rows of all metadata tables, without values that may differ."""
    rows_of: Contents = {}
    with lake.connect_metadata() as con:
        for table in TABLES:
            cursor = con.execute(f"SELECT * FROM {table}")
            names = [str(column[0]) for column in cursor.description or ()]
            rows_of[table] = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    label(rows_of)
    for table, rows in rows_of.items():
        for row in rows:
            for name in row:
                row[name] = None if (table, name) in DIFFERENT else plain(name, row[name])
    return rows_of


def label(contents: Contents) -> None:
    """Label files by their folders, because file names are random and the ids of one commit have any order."""
    first_row: dict[int, int] = {}
    labels = {}
    for row in contents["ducklake_data_file"]:
        commit, start = row["begin_snapshot"], row["row_id_start"]
        first_row[commit] = min(start, first_row.get(commit, start))
        row["path"] = text(row["path"]).rpartition("/")[0]
        labels[row["data_file_id"]] = f"{row['path']} of {commit}"
    for row in contents["ducklake_data_file"]:
        row["row_id_start"] = first_row[row["begin_snapshot"]]
    for rows in contents.values():
        for row in rows:
            if "data_file_id" in row:
                row["data_file_id"] = labels[row["data_file_id"]]


def plain(name: str, value: Any) -> Any:
    """Return a value in a normal form, in which values of the same meaning are equal."""
    if value is not None and name == "changes_made":
        return sorted(text(value).split(","))
    if value is not None and name == "extra_stats":
        extra = json.loads(value)  # the engine writes six digits of a bounding box, we write all
        if isinstance(extra, dict):
            return extra | {"types": sorted(extra["types"])}
        return sorted(extra, key=lambda field: field["field_name"])
    return value


def text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def assert_same(theirs: Contents, ours: Contents) -> None:
    for table in TABLES:
        assert sorted(ours[table], key=repr) == sorted(theirs[table], key=repr), (
            f"{table}: {ours[table]} {theirs[table]}"
        )


# --- intended differences ---------------------------------------------------------------------------------------------


def table_without_bounds(before: Contents, theirs: Contents, ours: Contents) -> None:
    """A column without bounds had no values, or values with unknown bounds. An appending writer cannot tell which."""
    name = "ducklake_table_column_stats"
    unbounded = {row["column_id"] for row in before[name] if row["min_value"] is None}
    gone = unbounded - {row["column_id"] for row in ours[name]}
    assert gone
    theirs[name] = [row for row in theirs[name] if row["column_id"] not in gone]


def nulls_nobody_counted(before: Contents, theirs: Contents, ours: Contents) -> None:
    """The engine records no NULLs for some types even if there are some. We record that they were not counted."""
    uncounted = ("variant", "timetz", "interval")
    columns = {row["column_id"] for row in theirs["ducklake_column"] if text(row["column_type"]) in uncounted}
    for contents in (theirs, ours):
        for row in contents["ducklake_file_column_stats"] + contents["ducklake_table_column_stats"]:
            if row["column_id"] in columns:
                row |= {name: None for name in ("value_count", "null_count", "contains_null") if name in row}


def no_filters_beside_blobs(before: Contents, theirs: Contents, ours: Contents) -> None:
    """We write no Bloom filters for tables with blobs, because DuckDB probes them with the printed form of bytes."""
    for table, name in (
        ("ducklake_data_file", "file_size_bytes"),
        ("ducklake_data_file", "footer_size"),
        ("ducklake_table_stats", "file_size_bytes"),
    ):
        assert sum(map(int, _take(ours, table, name))) < sum(map(int, _take(theirs, table, name)))


def layout_in_the_creation(before: Contents, theirs: Contents, ours: Contents) -> None:
    """SQL sets the layout of a new table by an ALTER, which adds a token."""
    (token,) = {token for token in _tokens(theirs) if token.startswith("altered_table:")}
    _tokens(theirs).remove(token)


def both_tokens_of_a_replacement(before: Contents, theirs: Contents, ours: Contents) -> None:
    """We record both tokens even if nothing is added or retired, so that a concurrent INSERT or DELETE re-checks."""
    kinds = [{token.partition(":")[0] for token in _tokens(each)} for each in (theirs, ours)]
    assert kinds[0] < kinds[1]
    assert kinds[1] >= {"inserted_into_table", "deleted_from_table"}
    _tokens(theirs)[:] = _tokens(ours)


def next_file_id_moves(before: Contents, theirs: Contents, ours: Contents) -> None:
    """Readers cache statistics as long as the next file id stays the same, so we always increase it."""
    assert _last(theirs)["next_file_id"] == _last(before)["next_file_id"] == _last(ours)["next_file_id"] - 1
    _last(ours)["next_file_id"] -= 1


def folders_from_odd_names(before: Contents, theirs: Contents, ours: Contents) -> None:
    """We derive a table's folder from its name, so that concurrent first writers share it. The engine's is random."""
    for table in ("ducklake_schema", "ducklake_table"):
        assert _take(theirs, table, "path")[-1] != _take(ours, table, "path")[-1]


def new_fields_take_nulls(before: Contents, theirs: Contents, ours: Contents) -> None:
    """The engine records that a field added to a struct takes no NULL, although all older rows have NULL there."""
    for row in theirs["ducklake_column"]:
        if row["parent_column"] is not None and row["begin_snapshot"] == _last(theirs)["snapshot_id"]:
            assert not row["nulls_allowed"]
            row["nulls_allowed"] = type(row["nulls_allowed"])(True)


def bounds_stay_beside_nan(before: Contents, theirs: Contents, ours: Contents) -> None:
    """The engine drops a column's bounds when a file has only NaN. We keep them, because they stay true."""
    _forgotten(theirs, ours)


def bounds_as_insert_has_them(before: Contents, theirs: Contents, ours: Contents) -> None:
    """INSERT and `ducklake_add_data_files` write bounds of booleans and blobs in two forms. We write that of INSERT."""
    typed = {row["column_id"]: text(row["column_type"]) for row in theirs["ducklake_column"]}
    for name in ("ducklake_file_column_stats", "ducklake_table_column_stats"):
        for their_row, our_row in zip(_by_column(theirs[name]), _by_column(ours[name]), strict=True):
            if typed[our_row["column_id"]] in ("boolean", "blob"):
                assert our_row["min_value"] is not None
                assert our_row["max_value"] != their_row["max_value"]
                for row in (our_row, their_row):
                    row["min_value"] = row["max_value"] = None


def nothing_is_no_statistics(before: Contents, theirs: Contents, ours: Contents) -> None:
    """If a footer has no statistics, we leave the table's column without bounds and with possible NULLs."""
    name = "ducklake_table_column_stats"
    column_ids = {row["column_id"] for row in ours[name]}
    gone = [row for row in theirs[name] if row["column_id"] not in column_ids]
    assert {(row["min_value"], row["max_value"]) for row in gone} == {(None, None)}
    theirs[name] = [row for row in theirs[name] if row["column_id"] in column_ids]
    for their_row, our_row in zip(_by_column(theirs[name]), _by_column(ours[name]), strict=True):
        if their_row["contains_null"] is None:
            assert our_row["contains_null"]
            our_row["contains_null"] = None


def promoted_bounds_stay(before: Contents, theirs: Contents, ours: Contents) -> None:
    """The engine drops the bounds of a promoted column. We keep them, because they stay true."""
    _forgotten(theirs, ours)


def delete_files_end_with_their_file(before: Contents, theirs: Contents, ours: Contents) -> None:
    """The engine does not end the delete files of a retired file. A writer that reads only them sees them as live."""
    assert {row["end_snapshot"] for row in theirs["ducklake_delete_file"]} == {None}
    assert {row["end_snapshot"] for row in ours["ducklake_delete_file"]} == {_last(ours)["snapshot_id"]}
    for row in ours["ducklake_delete_file"]:
        row["end_snapshot"] = None


def _forgotten(theirs: Contents, ours: Contents) -> None:
    pairs = zip(*(_by_column(each["ducklake_table_column_stats"]) for each in (theirs, ours)), strict=True)
    kept = [
        our_row for their_row, our_row in pairs if their_row["min_value"] is None and our_row["min_value"] is not None
    ]
    assert kept
    for our_row in kept:
        our_row["min_value"] = our_row["max_value"] = None


def _tokens(contents: Contents) -> list[str]:
    changes: list[str] = max(contents["ducklake_snapshot_changes"], key=lambda row: row["snapshot_id"])["changes_made"]
    return changes


def _last(contents: Contents) -> dict[str, Any]:
    return max(contents["ducklake_snapshot"], key=lambda row: int(row["snapshot_id"]))


def _take(contents: Contents, table: str, name: str) -> list[Any]:
    """Remove a column, and return its values."""
    return [row.pop(name) for row in contents[table]]


def _by_column(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["table_id"], row["column_id"]))
