"""Inspect existing Parquet files before adding them: compare them with the table and describe them for the commit."""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence

import duckdb

from ducklake_orch.catalog.ingest.column_matching import Match, match_columns
from ducklake_orch.catalog.ingest.page_check import refuse_broken
from ducklake_orch.catalog.ingest.partition_proof import Candidate, assign_partitions, canonical_texts
from ducklake_orch.catalog.metadata import (
    NULL_FOLDER,
    ColumnDef,
    NewFile,
    Paths,
    TableDef,
    canonical_paths,
    duckdb_type,
    meant,
    path_folders,
    path_value,
    refuse_unowned,
)
from ducklake_orch.catalog.parquet import FileColumn, Footer, Shape, constant_stats, read_footers
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.error_classes import classify
from ducklake_orch.engine.quoting import folded
from ducklake_orch.errors import DataError, PartitionMismatchError, UnsupportedStatementError

log = logging.getLogger("ducklake_orch")
# Limits that keep error messages readable.
_FILES_NAMED = _GROUPS_NAMED = _PROBLEMS_NAMED = 20


def inspect_files(
    con: duckdb.DuckDBPyConnection,
    config: LakeConfig,
    table: TableDef,
    paths: Paths,
    *,
    allow_missing: bool = False,
    ignore_extra: bool = False,
    copied: bool = False,
    own: Sequence[str] = (),
    verify: str = "footer",
) -> list[NewFile]:
    """Inspect Parquet files and describe them as files of a table; reads footers, and columns only where needed.

    Args:
        con: A connection outside the lake that has the storage's secrets.
        config: The lake.
        table: The table that the files are added to.
        paths: Their paths, or patterns of paths.
        allow_missing: Whether files may lack columns of the table; they read as their default, else NULL.
        ignore_extra: Whether files may have columns that the table does not have; they are never read.
        copied: Whether copies of the files are added, not the files themselves.
        own: Instead of `paths`, files that this write has written itself. Their paths say nothing about their rows.
        verify: `pages` to read all values, `footer` to read footers only.

    Returns:
        The files, without those that have no rows.

    Raises:
        FileNotUsableError: When a file cannot be read.
        DuplicateFileError: When a file is given twice.
        DataError: When columns do not fit; names all of them.
        PartitionMismatchError: When a file spans partitions, or contradicts its path.
        UnsupportedStatementError: When the lake is encrypted.
    """
    if table.encrypted:
        raise UnsupportedStatementError(
            f"Lake `{config.name}` is encrypted, so files of other writers cannot be added.",
            remedy="The engine would treat them as encrypted and fail at every query. Use `lake.write` for their rows.",
        )
    inspection = _Inspection(con, config, table, allow_missing, ignore_extra, bool(own))
    files = list(own) or canonical_paths(con, config, paths, table.data_path, owned=not copied)
    if not copied:
        refuse_unowned(files)
    try:
        for shape in read_footers(con, config, files):
            inspection.take(shape)
            if verify == "pages":
                refuse_broken(con, config, [footer.path for footer in shape.files if footer.record_count])
    except duckdb.Error as error:
        failure = classify(error, config, f"Inspecting files for table `{table}` failed")
    else:
        return inspection.result(files)
    raise failure


class _Inspection:
    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        config: LakeConfig,
        table: TableDef,
        allow_missing: bool,
        ignore_extra: bool,
        own: bool,
    ) -> None:
        self.con = con
        self.own = own
        self.config = config
        self.table = table
        self.options = {"allow_missing": allow_missing, "ignore_extra": ignore_extra}
        self.columns = {folded(column.name): column.column_id for column in table.columns}
        self.matches: dict[tuple[tuple[FileColumn, ...], tuple[tuple[str, str], ...]], Match] = {}
        self.files: list[NewFile] = []
        self.empty: list[str] = []
        # The files that do not fit, by their problems.
        self.misfits: dict[tuple[str, ...], list[str]] = defaultdict(list)
        self.misplaced: dict[tuple[str, ...], list[str]] = defaultdict(list)

    def take(self, shape: Shape) -> None:
        """Inspect files that have the same columns."""
        alike: dict[tuple[tuple[str, str], ...], list[Footer]] = defaultdict(list)
        for footer in shape.files:
            if footer.record_count:
                folders = [] if self.own else path_folders(footer.path)
                keys = {name: key for key, _ in folders if (name := meant(key)) in self.columns}
                alike[tuple(sorted(keys.items()))].append(footer)
            else:
                self.empty.append(footer.path)
        for path_keys, footers in alike.items():
            match = self._match(shape.columns, path_keys)
            if match.problems:
                self.misfits[tuple(match.problems)] += [footer.path for footer in footers]
            else:
                self._take(shape, match, footers)

    def _match(self, columns: tuple[FileColumn, ...], path_keys: tuple[tuple[str, str], ...]) -> Match:
        known = self.matches.get((columns, path_keys))
        if known is None:
            known = match_columns(columns, self.table.columns, dict(path_keys), **self.options)
            self.matches[columns, path_keys] = known
        return known

    def _take(self, shape: Shape, match: Match, footers: Sequence[Footer]) -> None:
        stats = shape.statistics(match.leaves)
        files = [Candidate(footer, match, stats[footer.path]) for footer in footers]
        self._add_constants(match, files)
        fit = [file for file in files if not file.misfits]
        assign_partitions(self.con, self.table, fit)
        for file in files:
            path = file.footer.path
            if file.misfits:
                self.misfits[tuple(file.misfits)].append(path)
            elif file.misplaced:
                self.misplaced[tuple(file.misplaced)].append(path)
            else:
                self.files.append(self._new_file(file))

    def _add_constants(self, match: Match, files: Sequence[Candidate]) -> None:
        """Find the values of columns that the files do not have: from the path, or the table's default."""
        for column in match.missing:
            if column.column_id in self.columns.values() and not column.children:
                text = column.initial_default
                forms = canonical_texts(self.con, duckdb_type(column), [] if text is None else [text])
                for file in files:
                    file.constants[column.column_id] = None if text is None else forms[text]
        for column_id, key in match.from_path.items():
            column = self.table.column(column_id)
            texts = {file.footer.path: _path_text(file, column, key) for file in files}
            forms = canonical_texts(
                self.con, duckdb_type(column), {text for text in texts.values() if text is not None}
            )
            for file in files:
                text = texts[file.footer.path]
                file.constants[column_id] = None if text is None else forms[text]
                if text is not None and forms[text] is None:
                    kind = duckdb_type(column)
                    file.misfits.append(
                        f"column `{column.name}`: its path says `{key}={text}`, which is not of type {kind}"
                    )

    def _new_file(self, file: Candidate) -> NewFile:
        footer = file.footer
        stats = {column_id: known.stats for column_id, known in file.stats.items()}
        for column in file.match.missing:
            # The bounds of a nested default are not computed.
            if column.initial_default is None or column.column_id in file.constants:
                text = file.constants.get(column.column_id)
                stats |= {leaf.column_id: constant_stats(leaf, footer.record_count, text) for leaf in column.leaves()}
        for column_id in file.match.from_path:
            column = self.table.column(column_id)
            stats[column_id] = constant_stats(column, footer.record_count, file.constants[column_id])
        return NewFile(
            path=footer.path,
            record_count=footer.record_count,
            file_size=footer.file_size,
            footer_size=footer.footer_size,
            partition_values=file.values,
            stats=stats,
            mapping=file.match.mapping,
            outside=not footer.path.startswith(self.table.folder),
        )

    def result(self, order: Sequence[str]) -> list[NewFile]:
        """Return the files in the order in which they were given, or raise an error that lists all problems."""
        if self.misfits or self.misplaced:
            kind = DataError if self.misfits else PartitionMismatchError
            lines = _report(self.misfits) + _report(self.misplaced)
            count = sum(map(len, [*self.misfits.values(), *self.misplaced.values()]))
            what = "One file does" if count == 1 else f"{count} files do"
            raise kind(
                f"{what} not fit table `{self.table}`:\n" + "\n".join(lines),
                remedy="No file was added. Correct or leave out these files.",
            )
        if self.empty:
            shown = ", ".join(self.empty[:_FILES_NAMED])
            level = logging.DEBUG if self.own else logging.WARNING
            log.log(level, "Table `%s`: %d files without rows were not added: %s", self.table, len(self.empty), shown)
        position_of = {path: n for n, path in enumerate(order)}
        return sorted(self.files, key=lambda file: position_of[file.path])


def _path_text(file: Candidate, column: ColumnDef, key: str) -> str | None:
    same = [(name, value) for name, value in path_folders(file.footer.path) if meant(name) == folded(column.name)]
    values = [value for _, value in same]
    if len(set(values)) > 1:
        shown = " and ".join(f"`{name}={value}`" for name, value in same)
        file.misfits.append(f"column `{column.name}`: its path says {shown}")
    if column.type == "varchar" and values[0].lower() == "null":
        # Depending on its version, the engine reads this as NULL or as the text.
        why = (
            f"its path says `{key}={values[0]}`, which can mean NULL or the text; for NULL write `{key}={NULL_FOLDER}`"
        )
        file.misfits.append(f"column `{column.name}`: {why}")
    return path_value(values[0], column)


def _report(problems: Mapping[tuple[str, ...], Sequence[str]]) -> list[str]:
    """Return lines that describe the problems; files with the same problems are grouped."""
    lines = []
    for reasons, paths in list(problems.items())[:_GROUPS_NAMED]:
        more = f" and {len(paths) - 1} more like it" if len(paths) > 1 else ""
        lines += [f"  {paths[0]}{more}:", *(f"    {reason}" for reason in reasons[:_PROBLEMS_NAMED])]
        if len(reasons) > _PROBLEMS_NAMED:
            lines.append(f"    and {len(reasons) - _PROBLEMS_NAMED} more")
    if len(problems) > _GROUPS_NAMED:
        lines.append(f"  and {sum(map(len, list(problems.values())[_GROUPS_NAMED:]))} more files")
    return lines
