"""What the workers of a simulation do: operations, each determined by the seed and its number."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from random import Random
from typing import Any

import duckdb
from ducklake_orch import CommitInfo, DuckLake, MaintenancePolicy
from ducklake_orch.catalog.lifecycle import Retention, clean_up, delete_orphans, expire
from ducklake_orch.errors import DuckLakeOrchError, UnknownOutcomeError
from tests.support.random_verbs import TABLES, Ids, Rows, Verb, random_verb

# More than the ids that one operation uses.
_IDS_EACH = 100
# The rows of every table at the start, by id; merges change them, too.
FIRST_ROWS: Rows = {key: (key % 3, 0) for key in range(12)}
_POLICY = MaintenancePolicy.model_validate({"merge": {"min_files": 2}, "rewrite": {"delete_threshold": 0.01}})
_KINDS = {
    "change": 8,
    "transaction": 4,
    "stage": 2,
    "rollback": 1,
    "maintain": 3,
    "expire": 1,
    "clean up": 1,
    "read": 3,
}
_ATTEMPTS = 4


@dataclass
class Outcome:
    """How an operation ended.

    Attributes:
        status: `committed`, `done` (it commits nothing that the model must know), `failed` (certainly without effect),
            or `unknown`.
        snapshot: The snapshot that it was told.
        error: Why it failed.
        seen: Snapshots that will expire, with their marks.
        rows: What a reader has read: snapshot, table, rows.
    """

    status: str
    snapshot: int | None = None
    error: str | None = None
    seen: dict[int, Any] = field(default_factory=dict)
    rows: list[tuple[int, str, list[tuple[Any, ...]]]] = field(default_factory=list)


@dataclass(frozen=True)
class Operation:
    """An operation of a worker."""

    seed: int
    number: int

    @cached_property
    def kind(self) -> str:
        """What it does."""
        return self._random("kind").choices(list(_KINDS), list(_KINDS.values()))[0]

    @cached_property
    def verbs(self) -> list[Verb]:
        """The changes that it makes, in one snapshot."""
        if self.kind not in ("change", "transaction", "stage"):
            return []
        rng, ids = self._random("verbs"), Ids(self.number * _IDS_EACH + len(FIRST_ROWS))
        ids.committed.extend(FIRST_ROWS)
        return [random_verb(rng, ids) for _ in range(1 if self.kind == "change" else rng.choice((2, 3)))]

    @property
    def once(self) -> bool:
        """Whether it has an idempotency key, so that it can be repeated although its outcome is unknown."""
        return self.kind != "change" or self.verbs[0].keyed

    def run(self, lake: DuckLake) -> Outcome:
        """Run it as a task does that is tried again."""
        unknown = False
        for attempt in range(_ATTEMPTS):
            try:
                return _RUN[self.kind](self, lake)
            except DuckLakeOrchError as error:
                unknown = unknown or isinstance(error, UnknownOutcomeError)
                if attempt == _ATTEMPTS - 1 or not (error.retryable or (unknown and self.once)):
                    return Outcome("unknown" if unknown else "failed", error=f"{type(error).__name__}: {error}")
            except duckdb.Error as error:
                import traceback

                frames = [f for f in traceback.extract_tb(error.__traceback__) if "ducklake_orch" in f.filename]
                with open("/tmp/h/raw.log", "a") as file:
                    print(
                        self.kind,
                        str(error)[:60].replace("\n", " "),
                        *(f"{f.filename.split('ducklake_orch/')[-1]}:{f.lineno}" for f in frames[-4:]),
                        file=file,
                    )
                return Outcome("unknown", error=f"raw {error}")
        raise AssertionError("the last attempt returns")

    @property
    def key(self) -> str:
        """Its idempotency key."""
        return f"operation {self.number}"

    def commit(self, **more: Any) -> CommitInfo:
        """The mark of its snapshot."""
        return CommitInfo(extra={"operation": self.number, **more})

    def random(self, lake: DuckLake) -> Random:
        """Return a source of choices that depend on the state of the lake."""
        return self._random(str(lake.snapshots(limit=1)[0].snapshot_id))

    def _random(self, purpose: str) -> Random:
        return Random(f"{self.seed} {self.number} {purpose}")


class _Marked:
    """A lake whose verbs carry the key and the mark of an operation."""

    def __init__(self, lake: DuckLake, operation: Operation) -> None:
        self._lake, self._operation = lake, operation

    def __getattr__(self, name: str) -> Callable[..., Any]:
        key = {"idempotency_key": self._operation.key} if self._operation.verbs[0].keyed else {}
        return partial(getattr(self._lake, name), commit=self._operation.commit(), **key)


def _change(operation: Operation, lake: DuckLake) -> Outcome:
    result = operation.verbs[0].run(_Marked(lake, operation))
    return Outcome("committed", getattr(result, "snapshot_id", None))


def _transact(operation: Operation, lake: DuckLake) -> Outcome:
    isolation: Any = "serializable" if operation.number % 3 == 0 else "snapshot"
    commit = operation.commit()
    with lake.transaction(idempotency_key=operation.key, commit=commit, isolation=isolation) as tx:
        for verb in operation.verbs:
            verb.run(tx)
    return Outcome("committed", tx.result.snapshot_id if tx.result else None)


def _stage(operation: Operation, lake: DuckLake) -> Outcome:
    stage = lake.stage(operation.key)
    if stage.info().status == "open":
        with stage.transaction(idempotency_key=operation.key) as tx:
            for verb in operation.verbs:
                verb.run(tx)
    try:
        return Outcome("committed", stage.publish(commit=operation.commit()).snapshot_id)
    except DuckLakeOrchError as error:
        if not isinstance(error, UnknownOutcomeError) and not error.retryable:
            stage.discard()
        raise


def _roll_back(operation: Operation, lake: DuckLake) -> Outcome:
    rng = operation.random(lake)
    table = rng.choice(TABLES)
    to = rng.choice(lake.snapshots(limit=6)).snapshot_id
    with lake.transaction(idempotency_key=operation.key, commit=operation.commit(table=table, to=to)) as tx:
        tx.rollback(table, to)
    return Outcome("committed", tx.result.snapshot_id if tx.result else None)


def _maintain(operation: Operation, lake: DuckLake) -> Outcome:
    names = operation.random(lake).choice((["flush"], ["merge"], ["rewrite"], ["flush", "rewrite", "merge"]))
    lake.maintain(_POLICY, operations=names)
    return Outcome("done")


def _expire(operation: Operation, lake: DuckLake) -> Outcome:
    """Expire some of the older snapshots. Their marks are remembered, as the model needs them."""
    found = lake.snapshots()
    seen = {snapshot.snapshot_id: dict(snapshot.extra or {}) for snapshot in found}
    older = sorted(seen)[:-3]
    only = operation.random(lake).sample(older, len(older) // 2)
    expire(lake.config, Retention(datetime.now(UTC) + timedelta(days=2)), only=only)
    return Outcome("done", seen=seen)


def _clean_up(operation: Operation, lake: DuckLake) -> Outcome:
    """Delete what nobody needs. The hour for which files of running writes are spared is part of the promise."""
    clean_up(lake.config, datetime.now(UTC) + timedelta(days=2))
    delete_orphans(lake.config, datetime.now(UTC) - timedelta(hours=1))
    return Outcome("done")


def _read(operation: Operation, lake: DuckLake) -> Outcome:
    table, snapshot = operation.random(lake).choice(TABLES), lake.snapshots(limit=1)[0].snapshot_id
    rows = sorted(tuple(row.values()) for row in lake.read(table, snapshot=snapshot).to_pylist())
    return Outcome("done", rows=[(snapshot, table, rows)])


_RUN: dict[str, Callable[[Operation, DuckLake], Outcome]] = {
    "change": _change,
    "transaction": _transact,
    "stage": _stage,
    "rollback": _roll_back,
    "maintain": _maintain,
    "expire": _expire,
    "clean up": _clean_up,
    "read": _read,
}


def applied(operation: Operation, mark: Any, truth: Sequence[dict[str, Rows]]) -> dict[str, Rows]:
    """Return the rows of all tables after an operation.

    Args:
        operation: The operation.
        mark: What its snapshot says about it.
        truth: The rows at each snapshot before, by the snapshot's id.
    """
    tables = dict(truth[-1])
    if operation.kind == "rollback":
        tables[mark["table"]] = truth[mark["to"]][mark["table"]]
    for verb in operation.verbs:
        tables[verb.table] = verb.effect(tables[verb.table])
    return tables
