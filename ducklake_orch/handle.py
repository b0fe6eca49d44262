"""Which lake, and how it is opened: what every verb of the facade stands on."""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.units import read_argument
from ducklake_orch.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb

    from ducklake_orch.engine.attach import Pin
    from ducklake_orch.engine.session import Session


class LakeHandle:
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
        # The file this came from, to open its other lakes; data, so that a lake can be pickled.
        self._file: dict[str, Any] | None = None

    # --- where the configuration comes from ----------------------------------------------------------------------

    @classmethod
    def local(cls, path: str | Path = "./lake", **fields: Any) -> Self:
        """Return an embedded lake: a SQLite catalog `<path>.sqlite` with its files in `<path>.files/` beside it."""
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
        """Return a lake given by the URLs of its catalog and storage."""
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
        """Return a lake of a TOML file; the environment and `fields` override what stands there."""
        from ducklake_orch.config.loading import load

        loaded = load(path=path, profile=profile, lake=lake, **fields)
        result = cls(loaded.config, origins=loaded.origins)
        result._file = {"path": path, "profile": profile}
        return result

    @classmethod
    def from_env(cls, **fields: Any) -> Self:
        """Return the lake that the environment describes (`DUCKLAKE_CATALOG`, `DUCKLAKE_STORAGE` and so on)."""
        from ducklake_orch.config.loading import load

        loaded = load(**fields)
        result = cls(loaded.config, origins=loaded.origins)
        result._file = {"path": path} if (path := os.environ.get("DUCKLAKE_CONFIG")) else None
        return result

    # --- opening -------------------------------------------------------------------------------------------------

    def environment(self) -> dict[str, str]:
        """Return the `DUCKLAKE_…` variables by which `from_env` opens this lake, for a process that is started for it.

        The lake's secrets are among them: they belong into its environment, not on a command line.
        """
        from ducklake_orch.config.environment import environment_of

        return environment_of(self.config)

    @property
    def required_extensions(self) -> list[str]:
        """The DuckDB extensions that connecting loads."""
        return self.config.required_extensions

    def preview_sql(
        self, *, read_only: bool = False, snapshot: int | None = None, as_of: datetime | str | None = None
    ) -> str:
        """Return the SQL that connecting runs, secrets masked; needs neither engine nor network."""
        from ducklake_orch.engine.attach import preview

        return preview(self.config, self._pin(read_only, snapshot, as_of))

    @contextmanager
    def connect(
        self, *, read_only: bool = False, snapshot: int | None = None, as_of: datetime | str | None = None
    ) -> "Iterator[duckdb.DuckDBPyConnection]":
        """Open a DuckDB connection that is in the lake, for a block.

        The connection is unguarded: what it writes takes no place in the queue and is not retried; `execute` does both.

        Args:
            read_only: Refuse writes.
            snapshot: See the lake as of this snapshot.
            as_of: See the lake as of this time, which must have a zone.
        """
        from ducklake_orch.engine.session import open_session
        from ducklake_orch.engine.snapshots import has_schema

        with open_session(self.config, self._pin(read_only, snapshot, as_of)) as session:
            session.dirty = True
            session.con.qualifies = has_schema(session, self.config.alias)
            yield session.con  # type: ignore[misc]  # everything of the real one, and cursors that stay in the lake

    def ensure_exists(self) -> None:
        """Create the lake if it does not exist yet and the configuration says `create_if_missing`."""
        from ducklake_orch.engine.session import open_session

        if self.config.create_if_missing and not self.config.read_only:
            with open_session(self.config, entering=False):
                pass

    def connect_metadata(self, *, read_only: bool = True) -> "AbstractContextManager[duckdb.DuckDBPyConnection]":
        """Open the metadata database itself, for inspection."""
        from ducklake_orch.engine.session import open_metadata

        return open_metadata(self.config, read_only=read_only)  # type: ignore[return-value]  # see connect()

    def _pin(self, read_only: bool, snapshot: int | None, as_of: datetime | str | None) -> "Pin":
        from ducklake_orch.engine.attach import Pin

        if isinstance(as_of, str):
            as_of = read_argument("as_of", datetime.fromisoformat, as_of)
        if snapshot is not None and not isinstance(snapshot, int):
            raise ConfigError(f"`snapshot` = {snapshot!r} is no number.", remedy="Give the id of a snapshot.")
        if snapshot is not None and as_of is not None:
            raise ConfigError("`snapshot` and `as_of` both pin the lake.", remedy="Give one of them.")
        if snapshot is not None and snapshot < 0:
            raise ConfigError(f"`snapshot` = {snapshot} is negative.", remedy="Snapshots are counted from 0.")
        if as_of is not None and as_of.tzinfo is None:
            raise ConfigError(f"`as_of` = {as_of.isoformat()} has no time zone.", remedy="Add one, `+00:00` say.")
        given = snapshot is not None or as_of is not None
        config = self.config
        return Pin(
            read_only or config.read_only,
            snapshot if given else config.snapshot,
            as_of if given else config.as_of,
        )

    def reading(
        self, snapshot: int | None = None, as_of: datetime | str | None = None, *, entering: bool = True
    ) -> "AbstractContextManager[Session]":
        """Open a session that looks into the lake; what the package's own reading verbs run in."""
        from ducklake_orch.engine.dialects import dialect_of
        from ducklake_orch.engine.session import open_session

        # Read-only lets several processes look into a file at once, and needs no right to write; on a server one kind
        # of connection serves reading and writing.
        file = self.config.catalog_file
        read_only = file is not None and file.exists()
        if file is not None and not entering and not dialect_of(self.config).reads_one_moment:
            # Only a session that may write can read such metadata as of one moment; see `metadata.reading`.
            read_only = read_only and not all(os.access(path, os.W_OK) for path in (file, file.parent))
        pin = self._pin(read_only, snapshot, as_of)._replace(reads=True)
        return open_session(self.config, pin, entering=entering)

    def sibling(self, name: str) -> Self:
        """Return another lake of the configuration file that this one came from."""
        if self._file is None:
            raise ConfigError(
                f"Lake `{self.config.name}` came from no configuration file that could hold a lake `{name}`.",
                remedy="Open it with DuckLake.from_toml, or open the other lake itself.",
            )
        return type(self).from_toml(lake=name, **self._file)

    def __repr__(self) -> str:
        storage = self.config.storage.to_url() if self.config.storage else "MotherDuck"
        return f"DuckLake({self.config.name!r}, catalog={self.config.catalog.to_url()!r}, storage={storage!r})"
