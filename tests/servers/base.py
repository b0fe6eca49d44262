"""The base of all test servers: a child process on a loopback port, in its own folder."""

import os
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

LOOPBACK = "127.0.0.1"
REPOSITORY = Path(__file__).resolve().parents[2]
LOCAL_BIN = (REPOSITORY / ".servers" / "bin", REPOSITORY / ".servers" / "node_modules" / ".bin")


class ServerUnavailable(Exception):
    """The server cannot run on this machine."""

    WORDS = "is not available here; to get it:"

    def __init__(self, name: str, how: str) -> None:
        super().__init__(f"{name} {self.WORDS} {how}")


class Server(ABC):
    """A server that a test starts in a folder and stops afterwards."""

    name: ClassVar[str]
    how: ClassVar[str]

    @classmethod
    @abstractmethod
    def start(cls, folder: Path) -> Self:
        """Start the server with its data in `folder`, and return once it answers."""

    @abstractmethod
    def stop(self) -> None:
        """Stop the server; the data stays."""

    @classmethod
    def find_program(cls, program: str) -> Path:
        """Find a program that `make servers` installed in the repository or on the system."""
        # Debian installs servers to /usr/sbin, which is not on a normal user's PATH.
        path = os.pathsep.join([*map(str, LOCAL_BIN), os.environ.get("PATH", os.defpath), "/usr/sbin"])
        executable = shutil.which(program, path=path)
        if executable is None:
            raise ServerUnavailable(cls.name, cls.how)
        return Path(executable)


def free_port() -> int:
    """Return a TCP port on which no process listens now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def accepts_connections(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True


class ServerProcess:
    """A child process in its own session, with its output in a file of its folder."""

    def __init__(
        self,
        command: Sequence[str | Path],
        folder: Path,
        *,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> None:
        self.log = folder / "server.log"
        with self.log.open("ab") as log:
            # A new session, so that Ctrl-C in the terminal reaches only the tests, which then stop the server in order.
            self._process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                user=user,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until(self, ready: Callable[[], bool], *, timeout: float = 60) -> None:
        """Wait until the started server is ready. Stop it if it does not get ready in time."""
        deadline = time.monotonic() + timeout
        while self._process.poll() is None and time.monotonic() < deadline:
            if ready():
                return
            time.sleep(0.05)
        code = self._process.poll()
        self.stop()
        failure = f"did not answer within {timeout:g} s" if code is None else f"ended with exit code {code}"
        raise RuntimeError(f"{self._process.args!r} {failure}; the end of its log:\n{self._log_tail()}")

    def stop(self, *, first: signal.Signals = signal.SIGTERM, patience: float = 10) -> None:
        if self._process.poll() is not None:
            return
        self._process.send_signal(first)
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])
