"""The program of a `spark-submit`: `spark-submit … submit.py TABLE --mode append --sql "…"`.

It takes what `ducklake-orch write` takes, and prints the result as JSON.
"""

import sys

if __name__ == "__main__":
    # The folder of a script comes first, and modules here are called like some of Python's own.
    del sys.path[0]
    from ducklake_orch.cli import main

    sys.argv[1:] = ["write", "--json", *sys.argv[1:]]
    main()
