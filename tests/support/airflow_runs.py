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

# Names that Airflow 3.1.0 lacks or uses differently.
BundleDagBag: Any = getattr(dagbag, "BundleDagBag", dagbag.DagBag)
DagSerialization: Any = getattr(serialized_objects, "DagSerialization", vars(serialized_objects)["SerializedDAG"])


def bag_of(folder: Any) -> Any:
    """Read the DAGs of a folder."""
    try:
        return BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="dags-folder")
    except TypeError:  # before Airflow 3.2, which finds modules in the folder of the DAGs by itself
        sys.path.append(str(folder))
        return BundleDagBag(dag_folder=folder, bundle_path=folder)


def bundle() -> Any:
    """Return the DAG bundle."""
    return next(iter(DagBundlesManager().get_all_dag_bundles()))


def store(bag: Any) -> None:
    """Store the DAGs in the database, as the DAG processor does."""
    DagBundlesManager().sync_bundles_to_db()
    dagbag.sync_bag_to_db(bag, bundle().name, None)


def register(dag: DAG) -> None:
    """Store a DAG without a file in the database."""
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
    """Return the return value of a task."""
    return dag_run.get_task_instance(task_id).xcom_pull(task_ids=task_id)
