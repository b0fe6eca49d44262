"""Maintain a lake: `make_plan` plans, `run_plan` runs a plan and reports, `health` measures."""
