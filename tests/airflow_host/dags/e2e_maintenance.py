"""Maintenance whose merge loses its worker: in its first try, or in every try."""

import os
import signal
from datetime import timedelta
from typing import Any

from ducklake_orch.airflow import build_maintenance_dag


def lose_worker(context: Any) -> None:
    """Kill the process of the merge, as a machine that disappears does."""
    ti = context["ti"]
    if ti.task_id == "maintenance.merge" and (ti.try_number == 1 or ti.dag_id == "e2e_lost"):
        os.kill(os.getpid(), signal.SIGKILL)


common: Any = {
    "schedule": None,
    "operations": ["merge", "expire"],
    "retries": 1,
    "retry_delay": timedelta(seconds=1),
    "retry_exponential_backoff": False,
    "on_execute_callback": lose_worker,
}
lost_once = build_maintenance_dag("e2e_lost_once", **common)
lost = build_maintenance_dag("e2e_lost", **common)
