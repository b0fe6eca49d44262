"""The command line `ducklake-orch`; `main` is its entry point."""

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        from ducklake_orch.cli.program import app

        app()
    except KeyboardInterrupt:  # before the command began
        sys.stderr.write("interrupted: Nothing was changed.\n")
        sys.exit(130)
