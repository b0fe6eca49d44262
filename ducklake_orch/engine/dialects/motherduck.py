"""MotherDuck as a catalog, which can also store files and compute. Its statements are tested as text only."""

from typing import TYPE_CHECKING

from ducklake_orch.config.catalogs import MotherDuckCatalog
from ducklake_orch.engine.dialects.base import Dialect
from ducklake_orch.engine.quoting import identifier, literal, options
from ducklake_orch.engine.storage_secrets import create_secret, shown, storage_secret

if TYPE_CHECKING:
    pass


class MotherDuckDialect(Dialect[MotherDuckCatalog]):
    """A DuckLake database at MotherDuck."""

    keeps_rows = False

    def metadata_path(self) -> str:
        return f"md:__ducklake_metadata_{self.catalog.database}"

    def metadata_attach(self, alias: str, *, read_only: bool) -> str:
        return f"ATTACH {literal(self.metadata_path())} AS {identifier(alias)}"

    @property
    def uses_storage_secret(self) -> bool:
        return False  # MotherDuck stores the secret

    def login_statements(self, *, reveal: bool) -> list[str]:
        token = self.catalog.token
        return [f"SET motherduck_token = {shown(token, reveal=reveal)}"] if token else []

    def database_statements(self, *, create: bool, reveal: bool) -> list[str]:
        # MotherDuck stores a secret only if it is created through a connection to MotherDuck.
        secret = self._storage_secret(reveal=reveal)
        database = self.catalog.database
        if not create and self.attaches_lake:
            return ["ATTACH 'md:'", *secret] if secret else []
        if not create:  # by its name, so that a missing database is an error
            return [f"ATTACH {literal(f'md:{database}')}", *secret]
        limit = self.config.data_inlining_row_limit
        inner = options({"data_path": self.config.data_path, "data_inlining_row_limit": limit})[1:-1]
        lake = f"(TYPE DUCKLAKE{', ' if inner else ''}{inner})"
        return ["ATTACH 'md:'", *secret, f"CREATE DATABASE {identifier(database)} {lake}"]

    @property
    def attaches_lake(self) -> bool:
        return self.catalog.mode == "own_compute"

    def catalog_name(self) -> str:
        return literal(self.catalog.database)

    def _storage_secret(self, *, reveal: bool) -> list[str]:
        values = storage_secret(self.config.storage, at_motherduck=True)
        if values is None or self.catalog.secret_name:
            return []
        return [create_secret(f"ducklake_orch_{self.config.alias}", values, reveal=reveal, at_motherduck=True)]
