"""The lake's metadata, read and written natively: plan scans, commit files, detect conflicts, check consistency.

Each package here has a face, its `__init__.py`: other packages import from there only, and `faces.py` says how a face
works. Imports point down: metadata, parquet, scan and writing, commit, search; then verbs, feed, lifecycle and ingest.
fsck is separate from these and uses metadata, parquet and commit.
"""
