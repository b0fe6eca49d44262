"""Split SQL scripts into statements with the engine's parser, and classify each statement: `split`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import duckdb

from ducklake_orch.config.redaction import Scrubber
from ducklake_orch.engine.tokens import bare, is_divisible, refuse_unreadable
from ducklake_orch.errors import DuckLakeOrchError
from ducklake_orch.results import Kind

# Functions that change the lake although a SELECT or CALL calls them, with the short names of the lake's macros.
MAINTENANCE = frozenset(
    {
        "ducklake_flush_inlined_data",
        "ducklake_merge_adjacent_files",
        "ducklake_rewrite_data_files",
        "ducklake_expire_snapshots",
        "ducklake_cleanup_old_files",
        "ducklake_delete_orphaned_files",
        "merge_adjacent_files",
        "flush_inlined_data",
        "rewrite_data_files",
        "expire_snapshots",
        "cleanup_old_files",
        "delete_orphaned_files",
    }
)
_WRITING_CALLS = {"ducklake_add_data_files": "dml", "add_data_files": "dml", "ducklake_commit": "dml"}
_OPTION_CALLS = {"ducklake_set_option", "set_option"}
_MESSAGE_CALLS = {"ducklake_set_commit_message", "set_commit_message"}
_KINDS: dict[str, Kind] = {
    "SELECT": "query",
    "EXPLAIN": "query",
    "INSERT": "dml",
    "UPDATE": "dml",
    "DELETE": "dml",
    "MERGE_INTO": "dml",
    "COPY": "dml",
    "COPY_DATABASE": "dml",
    "EXECUTE": "dml",
    "CREATE": "ddl",
    "CREATE_FUNC": "ddl",
    "ALTER": "ddl",
    "DROP": "ddl",
}
_LITERAL = re.compile(
    r"(?<!\w)[eE](?P<escaped>'(?:[^'\\]|\\.|'')*')|'(?:[^']|'')*'|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$", re.DOTALL
)
_SETTING = re.compile(r"\b(?:SET|PRAGMA)\b([^;=]*)", re.IGNORECASE)
_SECRET_SETTING = re.compile(r"secret|password|token|account_key|connection_string", re.IGNORECASE)
_SECRET = re.compile(r"\bSECRET\b", re.IGNORECASE)
_CALLED = re.compile(r'(?<!\w)([A-Za-z_]\w*+)"?\s*\(')


_EXPLAINED_WRITE = re.compile(
    r"\s*EXPLAIN\s*(?:\((?=[^)]*ANALYZE)[^)]*\)|ANALYZE\b).*\b(?:INSERT|UPDATE|DELETE|MERGE|CREATE|ALTER|DROP|COPY)\b",
    re.IGNORECASE | re.DOTALL,
)
_OUTSIDE_DDL = re.compile(
    r"\s*(?:CREATE|DROP|ALTER)\b.*?\b(?:TEMP|TEMPORARY|SECRET|memory)\b", re.IGNORECASE | re.DOTALL
)
_READS_HISTORY = re.compile(
    r"\bAT\s*\(\s*(?:VERSION|TIMESTAMP)\b|(?:\bFROM|\bJOIN|,)\s+(?:[\w\"]+\.)*(?:ducklake_)?"
    r"(?:snapshots|table_changes|table_insertions|table_deletions|last_committed_snapshot)\s*\(",
    re.IGNORECASE,
)
_LISTS_OBJECTS = re.compile(
    r"\binformation_schema\b|\bpg_catalog\b|\bsqlite_master\b|\bduckdb_\w+\s*\(|\bSHOW\s+(?:ALL\s+)?TABLES\b",
    re.IGNORECASE,
)
_LEAVES_TABLES = re.compile(
    r"\s*(?:CREATE|DROP|ALTER)\s+(?:OR\s+REPLACE\s+)?(?:PERSISTENT\s+)?"
    r"(?:TEMP|TEMPORARY|SCHEMA|VIEW|MACRO|FUNCTION|SECRET)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Command:
    """One statement of a script.

    Attributes:
        sql: The statement's text.
        kind: What the statement does.
        calls: The functions it calls, in lower case.
        transaction: `begin`, `commit` or `rollback` for a statement of that kind, else None.
        parameter_names: Its placeholders.
        own_transaction: Whether it must not run in a transaction that ducklake-orch begins.
        reaches_outside: Whether it may change more than the lake: settings, secrets, other databases.
        expanded: Whether the engine's parser replaces it by several statements, including its own transaction.
        error: Why the statement cannot run, if it could not be parsed.
    """

    sql: str
    kind: Kind
    calls: frozenset[str] = frozenset()
    transaction: str | None = None
    parameter_names: frozenset[str] = frozenset()
    own_transaction: bool = False
    reaches_outside: bool = False
    expanded: bool = False
    error: DuckLakeOrchError | None = None

    @property
    def checkpoints(self) -> bool:
        """Whether it is a CHECKPOINT, which runs all maintenance with the lake's options."""
        return self.kind == "maintenance" and not self.calls & MAINTENANCE

    @property
    def writes(self) -> bool:
        """Whether it can change the lake and must therefore wait in the writers' queue."""
        return self.kind in ("ddl", "dml", "maintenance") or bool(self.calls & _OPTION_CALLS)

    @cached_property
    def _bare(self) -> str:
        """The text without comments and strings."""
        return bare(self.sql)

    @property
    def changes_tables(self) -> bool:
        """Whether it is a statement that can change a table of the lake, other than by dropping its schema."""
        is_statement = self.kind in ("ddl", "dml") and not self.calls & _WRITING_CALLS.keys()
        return is_statement and not _LEAVES_TABLES.match(self._bare)

    @property
    def lake_calls(self) -> frozenset[str]:
        """The functions it calls that change files, options or snapshots of the lake."""
        return self.calls & (_WRITING_CALLS.keys() | _OPTION_CALLS | MAINTENANCE)

    @property
    def reads_history(self) -> bool:
        """Whether it reads earlier snapshots of the lake, or lists snapshots."""
        return bool(_READS_HISTORY.search(self._bare))

    @property
    def lists_objects(self) -> bool:
        """Whether it lists the tables, columns or other objects of databases."""
        return bool(_LISTS_OBJECTS.search(self._bare))

    @property
    def sets_message(self) -> bool:
        """Whether it sets the commit message itself."""
        return bool(self.calls & _MESSAGE_CALLS)


def split(con: duckdb.DuckDBPyConnection, script: str) -> list[Command]:
    """Split a script and classify its statements.

    Raises:
        duckdb.Error: When the script cannot be parsed.
        StatementError: When it has a character that the engine does not read.
    """
    refuse_unreadable(script)
    statements = con.extract_statements(script)
    if all(statement.query.strip() for statement in statements):
        return [_command(statement) for statement in statements]
    # The parser replaces some statements by several others and loses their text.
    commands: list[Command] = []
    for text in _texts(script):
        statements = con.extract_statements(text)
        if len(statements) == 1 and statements[0].query.strip():
            commands.append(_command(statements[0]))
        elif statements:
            kinds = [statement.type.name for statement in statements]
            kind = next((kind for kind in kinds if kind not in ("TRANSACTION", "CREATE")), kinds[-1])
            command = classify_statement(text, kind, frozenset().union(*map(_parameters, statements)))
            commands.append(replace(command, expanded=True))
    return commands


def _command(statement: duckdb.Statement) -> Command:
    return classify_statement(statement.query, statement.type.name, _parameters(statement))


def _parameters(statement: duckdb.Statement) -> frozenset[str]:
    return frozenset(statement.named_parameters)


def _texts(script: str) -> Iterator[str]:
    """Yield the statements of a script as they were written."""
    raw = script.encode()
    start = 0
    for offset, _ in duckdb.tokenize(script):
        if raw[offset : offset + 1] == b";":
            yield raw[start:offset].decode()
            start = offset + 1
    yield raw[start:].decode()


def run_expanded(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Run the statements by which the parser replaces one statement, in the open transaction."""
    for statement in con.extract_statements(sql):
        if statement.type.name != "TRANSACTION":
            con.execute(statement)


def classify_statement(sql: str, statement_type: str, parameter_names: frozenset[str] = frozenset()) -> Command:
    """Classify one statement."""
    text = sql.strip().rstrip(";").strip()
    words_only = bare(text)
    words = words_only.split()
    first = words[0].upper() if words else ""
    calls = frozenset(name.lower() for name in _CALLED.findall(words_only))
    kind = _KINDS.get(statement_type, "utility")
    if calls & MAINTENANCE or "CHECKPOINT" in (word.upper() for word in words[:2]):
        kind = "maintenance"
    elif calls & _WRITING_CALLS.keys():
        kind = "dml"
    elif statement_type == "COPY" and _copies_out(words_only):
        kind = "query"
    elif statement_type == "EXPLAIN" and _EXPLAINED_WRITE.match(words_only):
        kind = "dml"
    transaction = None
    if statement_type == "TRANSACTION":
        transaction = "begin" if first in ("BEGIN", "START") else "commit" if first in ("COMMIT", "END") else "rollback"
    return Command(
        sql=text,
        kind=kind,
        calls=calls,
        transaction=transaction,
        parameter_names=parameter_names,
        own_transaction=kind in ("maintenance", "utility"),
        reaches_outside=(kind == "utility" and transaction is None) or bool(_OUTSIDE_DDL.match(words_only)),
    )


def _copies_out(bare: str) -> bool:
    """Whether a COPY reads the lake: `COPY (query) TO` or `COPY table TO`, not `COPY table FROM`."""
    depth = 0
    for word in re.findall(r"[()]|\w+", bare):
        depth += (word == "(") - (word == ")")
        if depth == 0 and word.upper() in ("TO", "FROM"):
            return bool(word.upper() == "TO")
    return False


def redact(sql: str, scrub: Scrubber) -> str:
    """Return a statement as results and logs may show it, without the lake's secrets and its own."""
    return secrets_in(sql)(scrub(sql))


def secrets_in(sql: str) -> Scrubber:
    """Return a scrubber for the literals of a statement that creates or sets a secret; it masks errors as well."""
    if not _holds_secret(sql):
        return Scrubber()
    literals = [text for match in _LITERAL.finditer(sql) for text in _contents(match)]
    # An unterminated literal reaches to the end of the script.
    rest = re.split(r"'|\$\w*\$", _LITERAL.sub(" ", sql), maxsplit=1)
    return Scrubber([*literals, *rest[1:]])


def _holds_secret(sql: str) -> bool:
    """Whether SQL creates or sets a secret, or may do so because the engine cannot tell its words from its strings."""
    words = bare(sql) if is_divisible(sql) else sql
    return bool(_SECRET.search(words)) or any(map(_SECRET_SETTING.search, _SETTING.findall(words)))


def _contents(literal: re.Match[str]) -> list[str]:
    """Return what a string holds; one with escapes as it is written and as the engine reads it."""
    if literal["escaped"]:
        text = literal["escaped"][1:-1]
        return [text, re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL).replace("''", "'")]
    if literal[0].startswith("'"):
        return [literal[0][1:-1].replace("''", "'")]
    tag = literal[0].index("$", 1) + 1
    return [literal[0][tag:-tag]]
