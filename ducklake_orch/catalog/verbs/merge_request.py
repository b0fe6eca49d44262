"""The arguments of `lake.merge`, one class per strategy."""

from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from datetime import UTC, date, datetime
from typing import Any

from ducklake_orch.catalog.verbs.row_change import RowRequest
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.quoting import folded
from ducklake_orch.errors import ConfigError


@dataclass(frozen=True)
class KeyedRequest(RowRequest):
    """The arguments of all strategies; `lake.merge` documents them."""

    keys: Sequence[str] = ()
    null_keys: str = "error"
    deduplicate_by: Sequence[str] | None = None
    hard_delete: str | None = None
    schema_evolution: str = "error"
    partition_by: Sequence[str] | None = None
    sort_by: Sequence[str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("hard_delete", "row_hash", "valid_from", "valid_to"):
            text = getattr(self, name, None)
            if not isinstance(text, str) and (text is not None or (name.startswith("valid_") and hasattr(self, name))):
                raise ConfigError(f"`{name}` = {text!r} is not the name of a column.")
        self._check_keys()
        self._check_value("null_keys", ("error", "match"))
        self._check_value("schema_evolution", ("error", "add", "promote"))
        for name in ("keys", "merge_key", "row_hash", "boundary"):
            value = getattr(self, name, None)
            named = [value] if isinstance(value, str) else value if isinstance(value, Sequence) else ()
            if self.hard_delete is not None and folded(self.hard_delete) in map(folded, named):
                raise ConfigError(f"`hard_delete` and `{name}` name the same column, `{self.hard_delete}`.")

    def _check_keys(self) -> None:
        self._check_names("keys")

    def _check_names(self, argument: str) -> None:
        names = getattr(self, argument)
        are_names = isinstance(names, Sequence) and all(isinstance(name, str) for name in names)
        if isinstance(names, str) or not names or not are_names:
            is_text = isinstance(names, str) and names
            remedy = f'Write `{argument}=["{names}"]`.' if is_text else "A merge needs the key columns."
            raise ConfigError(f"`{argument}` = {names!r} is not a list of names.", remedy=remedy)
        if len({folded(name) for name in names}) < len(names):
            raise ConfigError(f"`{argument}` = {names!r} names a column twice.")

    def _check_value(self, argument: str, known: Sequence[str]) -> None:
        value = getattr(self, argument)
        if value not in known:
            raise ConfigError(f"`{argument}` = {value!r} is unknown.", remedy=nearest(str(value), known))


@dataclass(frozen=True)
class UpsertRequest(KeyedRequest):
    """The arguments of `upsert`."""

    when_matched: str | Mapping[str, str] = "update"
    matched_condition: str | None = None
    delete_condition: str | None = None
    when_not_matched: str = "insert"
    when_not_matched_by_source: str = "keep"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_value("when_not_matched", ("insert", "ignore"))
        self._check_value("when_not_matched_by_source", ("keep", "delete"))
        known = ("update", "keep", "delete")
        if not isinstance(self.when_matched, Mapping) and self.when_matched not in known:
            remedy = f"{nearest(str(self.when_matched), known)} Or give a mapping of columns to expressions.".strip()
            raise ConfigError(f"`when_matched` = {self.when_matched!r} is unknown.", remedy=remedy)


@dataclass(frozen=True)
class InsertOnlyRequest(KeyedRequest):
    """The arguments of `insert-only`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hard_delete is not None:
            raise ConfigError("Strategy `insert-only` and `hard_delete` cannot be combined.")

    def as_upsert(self) -> UpsertRequest:
        """Return the upsert that does the same."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return UpsertRequest(**given, when_matched="keep")


@dataclass(frozen=True)
class DeleteInsertRequest(KeyedRequest):
    """The arguments of `delete-insert`."""

    merge_key: Sequence[str] | None = None

    def _check_keys(self) -> None:
        if self.keys or self.merge_key is None:
            self._check_names("keys")
        elif self.deduplicate_by is not None:
            raise ConfigError("`deduplicate_by` needs `keys`.", remedy="Name the columns that identify a row.")
        if self.merge_key is not None:
            self._check_names("merge_key")


@dataclass(frozen=True)
class HistoryRequest(KeyedRequest):
    """The arguments of `scd2`.

    Attributes:
        began: The time of the run, which is the same for all attempts.
    """

    valid_from: str = "valid_from"
    valid_to: str = "valid_to"
    boundary: str | date | None = None
    active: Any = None
    row_hash: str | None = None
    retire_absent: bool = True
    merge_key: Sequence[str] | None = None
    began: datetime = field(default_factory=lambda: datetime.now(UTC))

    def _check_keys(self) -> None:
        if self.keys:
            self._check_names("keys")
        if self.merge_key is not None:
            self._check_names("merge_key")
            if not self.retire_absent:
                raise ConfigError("`merge_key` and `retire_absent` = False cannot be combined.")
        if not isinstance(self.retire_absent, bool):
            raise ConfigError(f"`retire_absent` = {self.retire_absent!r} is not true or false.")
        if folded(self.valid_from) == folded(self.valid_to):
            raise ConfigError(f"`valid_from` and `valid_to` are the same column, `{self.valid_to}`.")
        if self.boundary is not None and not isinstance(self.boundary, str | date):
            raise ConfigError(
                f"`boundary` = {self.boundary!r} is not a time.", remedy="Give a datetime or date, or name a column."
            )


_STRATEGIES: Mapping[str, type[KeyedRequest]] = {
    "upsert": UpsertRequest,
    "insert-only": InsertOnlyRequest,
    "delete-insert": DeleteInsertRequest,
    "scd2": HistoryRequest,
}
STRATEGIES = tuple(_STRATEGIES)


def request_for(strategy: str, given: Mapping[str, Any]) -> KeyedRequest:
    """Return the request of a strategy.

    Args:
        strategy: The strategy.
        given: The arguments of all strategies. Those that this strategy does not take must have their defaults.
    """
    if strategy not in _STRATEGIES:
        raise ConfigError(f"`strategy` = {strategy!r} is unknown.", remedy=nearest(str(strategy), STRATEGIES))
    taken = {}
    for name, value in given.items():
        defaults = {other: field.default for other in STRATEGIES for field in _fields(other) if field.name == name}
        if strategy in defaults:
            taken[name] = value
        elif value not in defaults.values():
            raise ConfigError(
                f"Strategy `{strategy}` and `{name}` cannot be combined.",
                remedy=f"`{name}` is an argument of {' and '.join(f'`{other}`' for other in defaults)}.",
            )
    return _STRATEGIES[strategy](**taken)


def _fields(strategy: str) -> "tuple[Field[Any], ...]":
    return fields(_STRATEGIES[strategy])
