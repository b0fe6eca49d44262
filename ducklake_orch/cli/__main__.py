"""`python -m ducklake_orch.cli`, for where the console script is not on PATH."""

from ducklake_orch.cli import main

main()
