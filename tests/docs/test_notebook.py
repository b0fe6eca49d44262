"""The notebook runs from its first cell to its last, and shows what it has stored as output."""

import ast
import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import REPOSITORY

NOTEBOOK = REPOSITORY / "docs" / "examples" / "notebook.ipynb"


def run_cell(source: str, names: dict[str, Any]) -> tuple[str, Any]:
    """Run a cell as a notebook does; return what it prints and the value of its last line."""
    tree, printed, value = ast.parse(source), io.StringIO(), None
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, str(NOTEBOOK), "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)
    return printed.getvalue(), value


def test_each_cell_of_the_notebook_shows_its_stored_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 7
    for cell in cells:
        printed, value = run_cell("".join(cell["source"]), names)
        stored = {"stream": "", "execute_result": ""}
        for output in cell["outputs"]:
            stored[output["output_type"]] = "".join(output.get("text") or output["data"]["text/plain"])
        assert (printed, "" if value is None else repr(value)) == (stored["stream"], stored["execute_result"])
