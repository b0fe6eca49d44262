"""Keep the configurations of lakes in the driver's process, out of what Spark sends to executors.

Spark sends the class of a data source, and all that it holds, to executors. It plans and commits in other processes on
the driver's machine, which fetch the configuration through a socket that only the driver's user can open. With Spark
Connect there is no such way to the server: the class holds the configuration itself.
"""

import hashlib
import importlib
import logging
import os
import pickle
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Client, Listener
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.errors import ConfigError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

log = logging.getLogger("ducklake_orch")
_DIGITS = 64


@dataclass(frozen=True)
class KeptConfig:
    """Where the configuration of a lake is kept.

    Attributes:
        socket: The socket of the driver's process.
        key: What the socket answers with the configuration.
    """

    socket: str
    key: str

    def fetch(self) -> LakeConfig:
        """Return the configuration, in a process on the driver's machine."""
        try:
            with Client(self.socket) as connection:
                connection.send_bytes(self.key.encode())
                config: LakeConfig = pickle.loads(connection.recv_bytes())  # noqa: S301 - our own, from the driver
                return config
        except (OSError, EOFError) as error:
            raise ConfigError(
                "The process that registered the lake has ended, or is on another machine.",
                remedy="Register the lake again, in a process that runs as long as the query.",
            ) from error


def keep(config: LakeConfig) -> KeptConfig:
    """Keep a configuration in this process, which is the driver."""
    global _keeper
    with _starting:
        if _keeper is None or _keeper.process != os.getpid():  # a thread does not survive a fork
            _keeper = _Keeper()
        keeper = _keeper
    packed = pickle.dumps(config)
    key = hashlib.sha256(keeper.salt + packed).hexdigest()
    keeper.configs[key] = packed
    return KeptConfig(keeper.socket, key)


def with_config(step: str, kept: KeptConfig | LakeConfig, given: Any) -> Any:
    """Run a step of a data source with the configuration of its lake.

    Args:
        step: Module and name of the function, such as `ducklake_orch.spark.data_source_steps:plan_read`.
        kept: The lake, or where the driver keeps it.
        given: The second argument of the function.
    """
    module, _, name = step.partition(":")
    config = kept.fetch() if isinstance(kept, KeptConfig) else kept
    return getattr(importlib.import_module(module), name)(config, given)


class _Keeper:
    """Answers each connection to its socket with the configuration that it asks for."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.salt = os.urandom(16)
        self.configs: dict[str, bytes] = {}
        try:
            self._listener = Listener(family="AF_UNIX")  # in a new folder of this user
        except OSError:  # the path is too long for a socket
            self._listener = Listener(os.path.join(tempfile.mkdtemp(dir="/tmp"), "socket"), "AF_UNIX")
        self.socket = str(self._listener.address)
        Thread(target=self._serve, name="ducklake-orch configurations", daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError as error:
                log.warning("a process that plans for Spark could not connect: %s", error)
                time.sleep(1)
                continue
            Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: "Connection[Any, Any]") -> None:
        with connection, suppress(OSError, EOFError):  # the other side has ended
            asked = connection.recv_bytes(_DIGITS).decode("ascii", "replace")
            if asked in self.configs:
                connection.send_bytes(self.configs[asked])


_keeper: _Keeper | None = None
_starting = Lock()
