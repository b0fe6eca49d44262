"""Keep the configurations of lakes in the driver's process, out of what Spark sends to executors.

Spark sends the class of a data source, and all that it holds, to executors. It plans and commits in other processes on
the driver's machine, which fetch the configuration through a socket that only the driver's user can open. With Spark
Connect there is no such way to the server: the class holds the configuration itself.
"""

import importlib
import os
import pickle
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Client, Listener
from threading import Thread
from typing import Any
from uuid import uuid4

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.errors import ConfigError


@dataclass(frozen=True)
class KeptConfig:
    """Where the configuration of a lake is kept.

    Attributes:
        socket: The socket of the driver's process.
        number: The number of the configuration there.
    """

    socket: str
    number: str

    def fetch(self) -> LakeConfig:
        """Return the configuration, in a process on the driver's machine."""
        try:
            with Client(self.socket) as connection:
                connection.send_bytes(self.number.encode())
                config: LakeConfig = pickle.loads(connection.recv_bytes())  # noqa: S301 - our own, from the driver
                return config
        except (OSError, EOFError) as error:
            raise ConfigError(
                "The process that registered the lake has ended, or is on another machine.",
                remedy="Register the lake again, in a process that runs as long as the query.",
            ) from error


def keep(spark: Any, config: LakeConfig) -> KeptConfig | LakeConfig:
    """Keep a configuration in this process; return what the class of a data source holds instead.

    Args:
        spark: The session, classic or Connect.
        config: The lake.
    """
    if not hasattr(spark, "_jsparkSession"):
        return config
    number = uuid4().hex
    _keeper(os.getpid()).configs[number] = pickle.dumps(config)
    return KeptConfig(_keeper(os.getpid()).socket, number)


def with_config(step: str, kept: KeptConfig | LakeConfig, given: Any) -> Any:
    """Run a step of a data source with the configuration of its lake.

    Args:
        step: Module and name of the function, such as `ducklake_orch.spark.data_source_steps:plan_read`.
        kept: What `keep` returned.
        given: The function's argument after the configuration.
    """
    module, _, name = step.partition(":")
    config = kept.fetch() if isinstance(kept, KeptConfig) else kept
    return getattr(importlib.import_module(module), name)(config, given)


class _Keeper:
    """Answers each connection to its socket with the configuration that it asks for."""

    def __init__(self) -> None:
        self.configs: dict[str, bytes] = {}
        self._listener = Listener(family="AF_UNIX")  # in a new folder of this user
        self.socket = str(self._listener.address)
        Thread(target=self._serve, name="ducklake-orch configurations", daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                with self._listener.accept() as connection:
                    connection.send_bytes(self.configs[connection.recv_bytes(64).decode()])
            except (OSError, EOFError, KeyError):  # the other side has ended, or is not ours
                continue


@cache
def _keeper(process: int) -> _Keeper:
    """Return the keeper of a process; a thread does not survive a fork."""
    return _Keeper()
