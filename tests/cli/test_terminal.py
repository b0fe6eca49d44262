"""Colour unless NO_COLOR is set, narrow terminals, a line while a command runs; a pipe gets plain, whole lines."""

import re
import signal

import pytest

from ducklake_orch import DuckLake
from tests.support.command_line import run_process
from tests.support.terminal import Terminal

ESCAPE = "\x1b["
LONG = "SELECT 'a text of more than eighty characters, ' || repeat('so that no table fits on a terminal ', 4) AS t"
COMMANDS = [
    ("tables",),
    ("snapshots",),
    ("options",),
    ("files", "numbers"),
    ("changes", "numbers", "--limit", "3"),
    ("maintain", "--plan"),
    ("health",),
    ("explain",),
    ("explain", "lake-locked"),
    ("sql", "FROM numbers LIMIT 2"),
]


def test_a_terminal_shows_colour_unless_no_color_is_set(lake: DuckLake) -> None:
    coloured, plain = Terminal("tables"), Terminal("tables", NO_COLOR="1")
    assert (coloured.finish(), plain.finish()) == (0, 0)
    assert ESCAPE in coloured.shown
    assert "main.numbers" in plain.shown
    assert "\x1b[3" not in plain.shown
    wrong = [Terminal("tables", "--config", "nowhere.toml", **more) for more in ({}, {"NO_COLOR": "1"})]
    assert [terminal.finish() for terminal in wrong] == [2, 2]
    assert ESCAPE in wrong[0].shown
    assert wrong[1].shown.startswith("error: ")
    assert ESCAPE not in wrong[1].shown


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_narrow_terminal_wraps_tables_within_its_width(lake: DuckLake, command: tuple[str, ...]) -> None:
    terminal = Terminal(*command, COLUMNS="40", NO_COLOR="1")
    assert terminal.finish() == 0
    lines = [re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line) for line in terminal.shown.splitlines()]
    assert lines
    # A path is not broken, so that it can be copied.
    assert [line for line in lines if len(line) > 40 and " " in line.strip()] == [], terminal.shown


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_pipe_gets_neither_colour_nor_escape_sequences(lake: DuckLake, command: tuple[str, ...]) -> None:
    answer = run_process(*command, COLUMNS="40", TERM="xterm-256color")
    assert answer.code == 0
    assert "\x1b" not in answer.out + answer.err


def test_a_pipe_gets_whole_lines(lake: DuckLake) -> None:
    answer = run_process("sql", LONG, COLUMNS="40")
    (line,) = [line for line in answer.out.splitlines() if "a text of more" in line]
    assert line.count("so that no table fits") == 4


def test_a_terminal_shows_that_a_command_still_runs(lake: DuckLake) -> None:
    terminal = Terminal("sql", "SELECT count(*) FROM range(1_000_000_000_000) t(i) WHERE i % 7 = 3")
    terminal.read_until("running, 3 s; Ctrl-C ends it")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.finish() == 130
    # The line is cleared before the last one is printed.
    *_, last = terminal.shown.split("\r\x1b[K")
    assert "interrupted:" in last
    assert "running" not in last
