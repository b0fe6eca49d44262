"""The lake's metadata, read and written natively: plan scans, commit files, judge conflicts, check what is there."""
