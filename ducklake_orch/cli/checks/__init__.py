"""What `ducklake-orch doctor` looks at."""
