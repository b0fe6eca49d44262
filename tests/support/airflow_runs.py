"""Run DAGs that a test defines, in this process."""

import sys
from typing import Any

from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.sdk import DAG
from airflow.serialization import serialized_objects

try:
    from airflow.dag_processing import dagbag
except ImportError:  # before Airflow 3.2
    from airflow.models import dagbag  # type: ignore[no-redef]

# The names that Airflow 3.1.0 has not yet, or has for others.
BundleDagBag: Any = getattr(dagbag, "BundleDagBag", dagbag.DagBag)
DagSerialization: Any = getattr(serialized_objects, "DagSerialization", vars(serialized_objects)["SerializedDAG"])


def bag_of(folder: Any) -> Any:
    """Read the DAGs of a folder."""
    try:
        return BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="dags-folder")
    except TypeError:  # before Airflow 3.2, where what reads DAGs finds the modules beside them by itself
        sys.path.append(str(folder))
        return BundleDagBag(dag_folder=folder, bundle_path=folder)


def bundle() -> Any:
    """Return where DAGs are looked for."""
    return next(iter(DagBundlesManager().get_all_dag_bundles()))


def store(bag: Any) -> None:
    """Make the DAGs known to the database, as the DAG processor does."""
    DagBundlesManager().sync_bundles_to_db()
    dagbag.sync_bag_to_db(bag, bundle().name, None)


def register(dag: DAG) -> None:
    """Make a DAG that is in no file known to the database."""
    folder = bundle().path
    bag = bag_of(folder)
    dag.fileloc, dag.relative_fileloc = f"{folder}/{dag.dag_id}.py", f"{dag.dag_id}.py"
    bag.bag_dag(dag)
    store(bag)


def run(dag: DAG, **options: Any) -> Any:
    """Run a DAG once."""
    register(dag)
    return dag.test(**options)


def states(dag_run: Any) -> dict[str, str]:
    """Return the state of each task of a run."""
    return {ti.task_id: str(ti.state) for ti in dag_run.get_task_instances()}


def result(dag_run: Any, task_id: str) -> Any:
    """Return what a task returned."""
    return dag_run.get_task_instance(task_id).xcom_pull(task_ids=task_id)
