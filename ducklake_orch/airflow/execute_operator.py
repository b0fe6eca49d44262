"""The operator that runs SQL commands in a lake."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import Context

from ducklake_orch.airflow.assets import report_snapshot
from ducklake_orch.airflow.base_operator import LakeOperator
from ducklake_orch.airflow.repeatable_sql import digest, is_one_write, replace_what_they_wrote
from ducklake_orch.airflow.task_run import Work
from ducklake_orch.catalog.metadata import marked_snapshot

log = logging.getLogger("ducklake_orch")


class DuckLakeExecuteOperator(LakeOperator):
    """Runs one or several SQL commands, and returns a JSON report of each.

    Each write waits for the catalog's lock and is retried after conflicts. A single writing command runs once over all
    attempts of the task, and so do all commands together with `atomic`. Commands with another text or other parameters
    count as different work. A cleared task runs the commands again if they replace what they wrote, that is, if they
    insert only into tables that they emptied (in part or in whole) or created anew. Without `atomic`, the commands
    before a failed one stay committed, and another attempt runs them again.

    Args:
        command: A statement, a script, or a `.sql` file.
        commands: Several statements, scripts or files; instead of `command`.
        atomic: Run all in one transaction: one snapshot, or nothing.
        on_error: Whether later commands run after a failed one: `stop` or `continue`. The task fails either way.
        max_rows: The number of rows to keep of each result.
        parameters: Values of placeholders: a sequence for `?`, a mapping for `$name`.
        read_only: Refuse writes.
        snapshot: Read the lake as of this snapshot.
        timeout: Seconds, or a duration such as `5m`, for all commands together.
        **kwargs: Arguments of every operator. `outlets` are the assets of the tables that the commands write; their
            events get the snapshot.
    """

    template_fields = (*LakeOperator.template_fields, "command", "commands", "parameters", "snapshot")
    template_ext = (".sql",)
    template_fields_renderers = {"command": "sql", "commands": "sql", "parameters": "json"}  # noqa: RUF012

    def __init__(
        self,
        *,
        command: str | None = None,
        commands: Sequence[str] | None = None,
        atomic: bool = False,
        on_error: Literal["stop", "continue"] = "stop",
        max_rows: int | None = 1000,
        parameters: Mapping[str, Any] | Sequence[Any] | None = None,
        read_only: bool = False,
        snapshot: int | str | None = None,
        timeout: float | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.command = command
        self.commands = commands
        self.atomic = atomic
        self.on_error = on_error
        self.max_rows = max_rows
        self.parameters = parameters
        self.read_only = read_only
        self.snapshot = snapshot
        self.timeout = timeout

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the commands. Raise the first error once all commands that should run have run."""
        work = Work.of(context)
        commands = self._commands()
        key = work.idempotency_key(f"(execute) {digest(commands, self.parameters)}")
        with self.working("The commands were not run"):
            if work.try_number > 1 and (done := self._done_before(key, commands, context)) is not None:
                log.warning(_REPLAYED, done)
                report_snapshot(context, self.outlets, self.ducklake_conn_id, done)
                return {"schema_version": 1, "operation": "execute", "status": "ok", "replayed": True, "snapshot": done}
            info = work.commit_info(f"task {work.task_id}")
            result = self.hook.lake().execute(
                commands,
                atomic=self.atomic,
                on_error=self.on_error,
                max_rows=self.max_rows,
                params=self.parameters,
                read_only=self.read_only,
                snapshot=None if self.snapshot in (None, "") else int(str(self.snapshot)),
                timeout=self.timeout,
                commit=replace(info, extra={**info.extra, "work": key}),
            )
            log.info("%s", result)
            result.raise_for_error()
            if snapshots := [ran.snapshot_after for ran in result.commands if ran.snapshot_after is not None]:
                report_snapshot(context, self.outlets, self.ducklake_conn_id, max(snapshots))
            return {"schema_version": 1, "operation": "execute", "replayed": False, **result.to_dict()}

    def _commands(self) -> str | list[str]:
        if (self.command is None) == (self.commands is None):
            given = "`command` and `commands`" if self.command is not None else "no command"
            raise AirflowFailException(f"Task `{self.task_id}` has {given}: give one of `command`, `commands`.")
        return self.command if self.command is not None else list(self.commands or [])

    def _done_before(self, key: str, commands: str | list[str], context: Context) -> int | None:
        """Return the snapshot of an earlier attempt, if the commands must not run again."""
        if not (self.atomic or is_one_write(commands)):
            return None
        # Airflow raises `max_tries` above `retries` when a task is cleared.
        cleared = getattr(context["ti"], "max_tries", 0) > (self.retries or 0)
        if cleared and replace_what_they_wrote(commands):
            return None
        return marked_snapshot(self.hook.lake().reading(entering=False), key.rpartition(":")[2])


_REPLAYED = (
    "an earlier attempt of this task ran these commands, as snapshot %d, so they were not run again. To run them once"
    " more, start a new run, or change their text: a comment is enough"
)
