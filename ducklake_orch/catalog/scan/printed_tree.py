"""Print a part of DuckDB's parse tree as SQL."""

import copy
import json
from typing import Any

import duckdb

from ducklake_orch.catalog.scan.predicate import Node
from ducklake_orch.engine.quoting import literal

_SELECT: Node = {
    "error": False,
    "statements": [
        {
            "node": {
                "type": "SELECT_NODE",
                "modifiers": [],
                "cte_map": {"map": []},
                "select_list": [],
                "from_table": {"type": "EMPTY", "alias": "", "sample": None, "query_location": 0},
                "where_clause": None,
                "group_expressions": [],
                "group_sets": [],
                "aggregate_handling": "STANDARD_HANDLING",
                "having": None,
                "sample": None,
                "qualify": None,
            },
            "named_param_map": [],
        }
    ],
}


def printed(con: duckdb.DuckDBPyConnection, node: Node) -> str:
    """Return the SQL of an expression, as DuckDB prints it, in parentheses."""
    select = copy.deepcopy(_SELECT)
    select["statements"][0]["node"]["select_list"] = [_exact(node)]
    row = con.execute(f"SELECT json_deserialize_sql({literal(json.dumps(select))})").fetchone()
    return f"({str(row[0]).removeprefix('SELECT ')})" if row else "NULL"


def _exact(node: Any) -> Any:
    """Return a tree in which floating-point constants are casts of texts; DuckDB would print them as decimals."""
    if isinstance(node, list):
        return [_exact(child) for child in node]
    if not isinstance(node, dict):
        return node
    if node.get("type") == "VALUE_CONSTANT" and node["value"]["type"]["id"] == "DOUBLE":
        text = {"type": {"id": "VARCHAR", "type_info": None}, "is_null": False, "value": repr(node["value"]["value"])}
        cast = {"cast_type": {"id": "DOUBLE", "type_info": None}, "try_cast": False, "child": node | {"value": text}}
        return {"class": "CAST", "type": "OPERATOR_CAST", "alias": "", "query_location": 0, **cast}
    return {key: _exact(value) for key, value in node.items()}
