"""`python -m ducklake_orch.cli`, for environments without the console script on PATH."""

from ducklake_orch.cli import main

main()
