"""Nightly maintenance of the lake: plan, operations, health."""

from ducklake_orch.airflow import build_maintenance_dag

dag = build_maintenance_dag(fail_at="bad")
