"""Maintain a lake: `plan.plan_maintenance` plans, `run.maintain` runs a plan and reports, `health.health` measures."""
