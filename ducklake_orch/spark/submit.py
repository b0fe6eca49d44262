"""The program of a `spark-submit`: `spark-submit … submit.py TABLE --mode append --sql "…"`.

It takes the arguments of `ducklake-orch write` and prints the result as JSON.
"""

import sys

if __name__ == "__main__":
    # Python puts the script's folder first on the path, where modules would hide some of the standard library's.
    del sys.path[0]
    from ducklake_orch.cli import main

    sys.argv[1:] = ["write", "--json", *sys.argv[1:]]
    main()
