"""Every night: what is to be done for the lake, doing it, and how it is then."""

from ducklake_orch.airflow import build_maintenance_dag

dag = build_maintenance_dag(fail_at="bad")
