"""Sets the comments and options of an output's table, from the settings of its definition."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg

from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.options import check_option
from ducklake_orch.engine.quoting import TableName, folded, identifier, literal
from ducklake_orch.engine.tables import set_options
from ducklake_orch.errors import ConfigError
from ducklake_orch.lake import DuckLake
from ducklake_orch.results import CommitInfo

COLUMN_SCHEMA = "dagster/column_schema"


@dataclass(frozen=True)
class TableProperties:
    """The properties that an output wants its table to have.

    Attributes:
        lake: The lake.
        table: The table.
        settings: The settings of the output.
    """

    lake: DuckLake
    table: TableName
    settings: Mapping[str, Any]

    def set_comments(self, commit: CommitInfo, log: Any) -> None:
        """Set the comments that differ, in one snapshot of their own.

        Args:
            commit: Author, message and extra of the snapshot.
            log: The log of the step, for a warning where the engine stores no comments.
        """
        if statements := list(self._comments()):
            if dialect_of(self.lake.config).stores_comments:
                self.lake.execute(statements, atomic=True, commit=commit).raise_for_error()
            else:
                log.warning("The engine cannot store comments in this catalog, so they are ignored.")

    def set_options(self) -> bool:
        """Set the options that differ, without a snapshot. Wrong options are refused also if the table does not exist.

        Returns:
            Whether the table exists. Options of a table that does not exist cannot be set yet.
        """
        options = self.settings.get("table_options")
        if not options:
            return True
        if not isinstance(options, Mapping):
            raise ConfigError(
                f"`table_options` = {options!r} is not a mapping.",
                remedy='Give names and values: {"target_file_size": "64MB"}.',
            )
        for name, value in options.items():
            check_option(name, value, scoped=True)
        if not self.lake.exists(str(self.table)):
            return False
        stored = {option.name: option.value for option in self.lake.options() if option.entry == str(self.table)}
        changed = {name: value for name, value in options.items() if stored.get(name) != str(value)}
        set_options(self.lake.config, f"setting options of `{self.table}`", changed, table=self.table)
        return True

    def _comments(self) -> Iterator[str]:
        """Yield the statements for comments that the table or its columns do not have."""
        name = self.table.sql(self.lake.config.alias)
        if (comment := self.settings.get("comment")) is not None:
            stored = next(table for table in self.lake.tables() if self.table.names(table.schema, table.table))
            if stored.comment != comment:
                yield f"COMMENT ON TABLE {name} IS {literal(comment)}"
        if descriptions := descriptions_in(self.settings):
            for column in self.lake.table(str(self.table)).schema():
                described = descriptions.get(folded(column.name))
                if described is not None and described != column.comment:
                    yield f"COMMENT ON COLUMN {name}.{identifier(column.name)} IS {literal(described)}"


def descriptions_in(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the descriptions of columns in the column schema of a definition, by folded name."""
    schema = settings.get(COLUMN_SCHEMA)
    if not isinstance(schema, dg.TableSchema):
        return {}
    return {folded(column.name): column.description for column in schema.columns if column.description}
