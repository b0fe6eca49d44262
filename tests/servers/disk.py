"""Simulates full disks: a tiny file system, and a limit on the size of one file."""

import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.base import ServerUnavailable


@contextmanager
def small_disk(size_bytes: int, folder: Path) -> Iterator[Path]:
    """Mount a tmpfs of that size (rounded up to whole pages) on `folder` for a `with` block."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=700", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ServerUnavailable("small disk", "run the tests as root, with the right to mount") from error
    try:
        yield folder
    finally:
        # Lazy, so that a file that a failed test left open does not keep the mount.
        subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)


def limit_file_size(size_bytes: int) -> None:
    """Limit the size of files that this process and its children write. Writing more fails with EFBIG.

    Call it in a child process, so that it does not affect the tests: `preexec_fn=partial(limit_file_size, 4096)`, or a
    call in the child's code.
    """
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # otherwise the signal kills the process before it gets the error
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))
