"""The lake's configuration and its connections, which every verb uses."""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.units import read_argument
from ducklake_orch.errors import ConfigError, LakeNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import duckdb
    from pyspark.sql import SparkSession

    from ducklake_orch.catalog.search import Finder
    from ducklake_orch.catalog.writing import Workers
    from ducklake_orch.engine.attach import Access
    from ducklake_orch.engine.session import Session
    from ducklake_orch.facade.stage import Stage
    from ducklake_orch.lake import DuckLake

T = TypeVar("T")


class LakeBase:
    """A lake's configuration, and connections to it.

    Args:
        config: The lake's configuration.

    Attributes:
        config: The lake's configuration.
        origins: Where each value of the configuration came from, by its path.
    """

    def __init__(self, config: LakeConfig, *, origins: Mapping[str, str] | None = None) -> None:
        self.config = config
        given = config.model_fields_set
        default = {field: "argument" if field in given else "default" for field in LakeConfig.model_fields}
        self.origins = dict(default if origins is None else origins)
        # The arguments that open the configuration file, for `sibling`; plain data, so that a lake can be pickled.
        self._file: dict[str, Any] | None = None

    # --- where the configuration comes from ----------------------------------------------------------------------

    @classmethod
    def local(cls, path: str | Path = "./lake", **fields: Any) -> Self:
        """Return an embedded lake: a SQLite catalog `<path>.sqlite` with its files in `<path>.files/`.

        Args:
            path: Path of the lake; the first write creates the lake.
            **fields: Further fields of `LakeConfig`.

        Examples:
            >>> DuckLake.local("other/lake", threads=2).config.name
            'lake'
        """
        base = Path(os.path.expanduser(path))
        base = base.with_suffix("") if base.suffix == ".sqlite" else base  # the catalog itself is meant
        name = fields.pop("name", None) or base.resolve().name
        defaults = {
            "catalog": {
                "type": "sqlite",
                "path": base.with_name(f"{base.name}.sqlite") if base.name else f"{name}.sqlite",
            },
            "storage": {
                "type": "local",
                "path": base.with_name(f"{base.name}.files") if base.name else f"{name}.files",
            },
            "create_if_missing": True,
        }
        return cls(LakeConfig(**({"name": name} | defaults | fields)))

    @classmethod
    def from_url(cls, name: str, *, catalog: str, storage: Any = None, **fields: Any) -> Self:
        """Return the lake whose catalog and storage have these URLs.

        Args:
            name: The lake's name.
            catalog: URL of the catalog.
            storage: URL or path of the storage.
            **fields: Further fields of `LakeConfig`.

        Examples:
            >>> DuckLake.from_url("shop", catalog="postgresql://etl@db/lakes", storage="s3://bucket/shop").config.alias
            'shop'
        """
        return cls(LakeConfig(name=name, catalog=catalog, storage=storage, **fields))

    @classmethod
    def from_toml(
        cls,
        path: str | Path = "ducklake.toml",
        *,
        profile: str | None = None,
        lake: str | None = None,
        **fields: Any,
    ) -> Self:
        """Return a lake of a TOML file; the environment and `fields` override the file.

        Args:
            path: The file.
            profile: The profile of the file to apply.
            lake: The lake's name in the file; needed if the file has several.
            **fields: Fields of `LakeConfig` that override the file.

        Examples:
            >>> _ = Path("ducklake.toml").write_text("[lakes.sales]")
            >>> DuckLake.from_toml("ducklake.toml").config.name
            'sales'
        """
        from ducklake_orch.config.loading import load

        loaded = load(path=path, profile=profile, lake=lake, **fields)
        result = cls(loaded.config, origins=loaded.origins)
        result._file = {"path": path, "profile": profile}
        return result

    @classmethod
    def from_env(cls, **fields: Any) -> Self:
        """Return the lake that the environment describes (`DUCKLAKE_CATALOG`, `DUCKLAKE_STORAGE` and so on).

        Args:
            **fields: Fields of `LakeConfig` that override the environment.

        Examples:
            >>> os.environ |= lake.environment()
            >>> DuckLake.from_env().table("orders").count()
            3
        """
        from ducklake_orch.config.loading import load

        loaded = load(**fields)
        result = cls(loaded.config, origins=loaded.origins)
        result._file = {"path": path} if (path := os.environ.get("DUCKLAKE_CONFIG")) else None
        return result

    # --- opening -------------------------------------------------------------------------------------------------

    def environment(self) -> dict[str, str]:
        """Return the `DUCKLAKE_…` variables by which `from_env` opens this lake, for a process that is started for it.

        The lake's secrets are among them: pass them in the environment, never on a command line.

        Examples:
            >>> lake.environment()["DUCKLAKE_NAME"]
            'shop'
        """
        from ducklake_orch.config.environment import environment_of

        return environment_of(self.config)

    @property
    def required_extensions(self) -> list[str]:
        """The DuckDB extensions that connecting loads.

        Examples:
            >>> lake.required_extensions
            ['ducklake', 'sqlite_scanner']
        """
        return self.config.required_extensions

    def preview_sql(
        self, *, read_only: bool = False, snapshot: int | None = None, as_of: datetime | str | None = None
    ) -> str:
        """Return the SQL that connecting runs, with secrets masked. It needs neither the engine nor a network.

        Args:
            read_only: Refuse writes.
            snapshot: See the lake as of this snapshot.
            as_of: See the lake as of this time.

        Examples:
            >>> lake.preview_sql().splitlines()[-1]
            'USE "shop";'
        """
        from ducklake_orch.engine.attach import preview

        return preview(self.config, self._pin(read_only, snapshot, as_of))

    @contextmanager
    def connect(
        self,
        *,
        read_only: bool = False,
        snapshot: int | None = None,
        as_of: datetime | str | None = None,
        tag: str | None = None,
        stage: str | None = None,
    ) -> "Iterator[duckdb.DuckDBPyConnection]":
        """Open a DuckDB connection to the lake for a block.

        Writes on the connection do not wait in the catalog's queue and are not retried; `execute` does both.

        Args:
            read_only: Refuse writes.
            snapshot: See the lake as of this snapshot.
            as_of: See the lake as of this time, which must have a time zone.
            tag: See the lake as of the snapshot with this name.
            stage: See the lake as a stage leaves it; this needs `read_only`.

        Examples:
            >>> with lake.connect(read_only=True) as con:
            ...     con.sql("SELECT max(price) FROM orders").fetchall()
            [(30.0,)]
        """
        from ducklake_orch.engine.session import open_session
        from ducklake_orch.engine.snapshots import has_schema

        snapshot = self._snapshot_of(tag, snapshot, as_of)
        if stage is not None:
            self._refuse_past(snapshot, as_of)
            if not read_only:
                raise ConfigError("A connection to a stage only reads.", remedy="Pass `read_only=True`.")
            with self._staged(stage).connect() as con:
                yield con
            return
        access = self._pin(read_only, snapshot, as_of)
        with open_session(self.config, access) as session:
            session.dirty = True
            session.con.qualifies = has_schema(session, self.config.alias)
            yield session.con  # type: ignore[misc]  # everything of the real one, and cursors that stay in the lake
        if access.writable:
            after_sql(self.config)

    def _staged(self, name: str) -> "Stage":
        from ducklake_orch.facade.stage import get_stage

        return get_stage(cast("DuckLake", self), name)

    @staticmethod
    def _refuse_past(snapshot: int | None, as_of: datetime | str | None) -> None:
        if snapshot is not None or as_of is not None:
            raise ConfigError("A stage has no snapshots.", remedy="Give a stage, or a snapshot, time or tag.")

    def ensure_exists(self) -> None:
        """Create the lake if it does not exist and the configuration allows it (`create_if_missing`).

        Examples:
            >>> DuckLake.local("new").ensure_exists()
            >>> Path("new.sqlite").exists()
            True
        """
        from ducklake_orch.engine.session import open_session

        if self.config.create_if_missing and not self.config.read_only:
            with open_session(self.config, entering=False):
                pass

    def connect_metadata(self, *, read_only: bool = True) -> "AbstractContextManager[duckdb.DuckDBPyConnection]":
        """Open the metadata database itself, for inspection.

        Args:
            read_only: Refuse writes.

        Examples:
            >>> with lake.connect_metadata() as con:
            ...     con.sql("SELECT table_name FROM ducklake_table").fetchall()
            [('orders',)]
        """
        from ducklake_orch.engine.session import open_metadata

        return open_metadata(self.config, read_only=read_only)  # type: ignore[return-value]  # see connect()

    def _pin(self, read_only: bool, snapshot: int | None, as_of: datetime | str | None) -> "Access":
        from ducklake_orch.engine.attach import Access

        if isinstance(as_of, str):
            as_of = read_argument("as_of", datetime.fromisoformat, as_of)
        if snapshot is not None and (not isinstance(snapshot, int) or isinstance(snapshot, bool)):
            raise ConfigError(f"`snapshot` = {snapshot!r} is not a snapshot id.", remedy="Give the id of a snapshot.")
        if snapshot is not None and as_of is not None:
            raise ConfigError("`snapshot` and `as_of` cannot be combined.", remedy="Give one of them.")
        if snapshot is not None and snapshot < 0:
            raise ConfigError(f"`snapshot` = {snapshot} is negative.", remedy="Snapshot ids start at 0.")
        if as_of is not None and as_of.tzinfo is None:
            raise ConfigError(f"`as_of` = {as_of.isoformat()} has no time zone.", remedy="Add one, such as `+00:00`.")
        given = snapshot is not None or as_of is not None
        config = self.config
        return Access(
            read_only or config.read_only,
            snapshot if given else config.snapshot,
            as_of if given else config.as_of,
        )

    def _snapshot_of(self, tag: str | None, snapshot: int | None, as_of: datetime | str | None) -> int | None:
        """Return the snapshot that has a tag; without a tag, the given one."""
        if tag is None:
            return snapshot
        from ducklake_orch.catalog.lifecycle import tagged_snapshot
        from ducklake_orch.catalog.metadata import reading

        if not isinstance(tag, str):
            raise ConfigError(f"`tag` = {tag!r} is not a name.", remedy="Give the name of a snapshot.")
        if snapshot is not None or as_of is not None:
            raise ConfigError("`tag` cannot be combined with `snapshot` or `as_of`.", remedy="Give one of them.")
        with self.reading(entering=False) as session, reading(session, f"Reading the tag `{tag}`") as metadata:
            return tagged_snapshot(metadata, tag)

    def _restored(self, to_snapshot: int | None, tag: str | None) -> int:
        """Return the snapshot whose rows `rollback` restores."""
        if (snapshot := self._snapshot_of(tag, to_snapshot, None)) is None:
            raise ConfigError("`rollback` needs a snapshot.", remedy="Give `to_snapshot` or `tag`.")
        return snapshot

    def reading(
        self, snapshot: int | None = None, as_of: datetime | str | None = None, *, entering: bool = True
    ) -> "AbstractContextManager[Session]":
        """Open the session in which the verbs that only read run; internal to the package."""
        from ducklake_orch.engine.dialects import dialect_of
        from ducklake_orch.engine.session import open_session

        # Read-only lets several processes open a file at once, and needs no right to write; on a server one kind
        # of connection serves reading and writing.
        file = self.config.catalog_file
        read_only = file is not None and file.exists()
        if file is not None and not entering and not dialect_of(self.config).reads_one_moment:
            # Only a session that may write can read such metadata as of one moment; see `metadata.reading`.
            read_only = read_only and not all(os.access(path, os.W_OK) for path in (file, file.parent))
        access = self._pin(read_only, snapshot, as_of)._replace(reads=True)
        return open_session(self.config, access, entering=entering)

    def _workers(self, spark: "SparkSession | None", engine: str) -> "Workers | None":
        if spark is None and engine == "spark":
            raise ConfigError('`engine="spark"` needs a session, or the data as a Spark DataFrame.')
        if spark is None or engine == "duckdb":
            return None
        from ducklake_orch.spark.row_workers import SparkWorkers

        return SparkWorkers(self.config, spark, forced=engine == "spark")

    def _finder(self, spark: "SparkSession | None", engine: str) -> "Finder":
        if spark is None and engine != "spark":
            from ducklake_orch.catalog.search import DuckDBFinder

            return DuckDBFinder()
        from ducklake_orch.spark.row_finder import finder_of

        return finder_of(self.config, spark, engine)

    def _read_if_created(
        self,
        read: "Callable[[Session], T]",
        otherwise: T,
        snapshot: int | None = None,
        as_of: datetime | str | None = None,
    ) -> T:
        """Return what is read in the lake, or `otherwise` if the first write is still to create it."""
        from ducklake_orch.catalog.metadata import naming_damage

        try:
            with self.reading(snapshot, as_of) as session:
                doing = f"Reading the catalog of lake `{self.config.name}`"
                with naming_damage(self.config, doing, lambda: closing(session.instance.root.cursor())):
                    return read(session)
        except LakeNotFoundError:
            if not self.config.create_if_missing:
                raise
            return otherwise

    def sibling(self, name: str) -> Self:
        """Return another lake of this lake's configuration file.

        Args:
            name: The other lake's name in the file.

        Examples:
            >>> _ = Path("ducklake.toml").write_text("lakes = {raw = {}, clean = {}}")
            >>> DuckLake.from_toml("ducklake.toml", lake="raw").sibling("clean").config.name
            'clean'
        """
        if self._file is None:
            raise ConfigError(
                f"Lake `{self.config.name}` was not read from a configuration file, so lake `{name}` cannot be found.",
                remedy="Open the lake with DuckLake.from_toml, or open the other lake directly.",
            )
        return type(self).from_toml(lake=name, **self._file)

    def __repr__(self) -> str:
        storage = self.config.storage.to_url() if self.config.storage else "MotherDuck"
        return f"DuckLake({self.config.name!r}, catalog={self.config.catalog.to_url()!r}, storage={storage!r})"


def after_sql(opened: "Session | LakeConfig") -> None:
    """Call `make_structs_readable` after statements of a user; it is slow to import, and only some catalogs need it."""
    from ducklake_orch.engine.dialects import dialect_of

    config = opened if isinstance(opened, LakeConfig) else opened.config
    if dialect_of(config).inlines_structs_as_sql:
        from ducklake_orch.catalog.metadata import make_structs_readable

        make_structs_readable(opened)
