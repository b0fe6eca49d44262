"""The checks of `ducklake-orch doctor`."""
