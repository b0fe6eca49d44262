"""A COMMIT that reaches the server after its client has given up: a proxy between the workers and the server."""

import os
import selectors
import signal
import socket
import traceback
from multiprocessing import Pipe
from multiprocessing.connection import Connection

_HOLD, _LET_PASS, _DELIVER = "hold the next COMMIT", "let each COMMIT pass", "deliver what is held"
_LONGEST_ANSWER_S = 10


class LateCommits:
    """A proxy in a process of its own.

    Attributes:
        port: Where it listens on the loopback.
        held: Whether it holds COMMITs that it has not delivered.

    Args:
        host: The server's host.
        port: The server's port.
    """

    def __init__(self, host: str, port: int) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = listener.getsockname()[1]
        self.held = False
        self._pipe, theirs = Pipe()
        self._process = os.fork()
        if self._process == 0:
            try:
                _Proxy(listener, (host, port), theirs).run()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        listener.close()
        theirs.close()

    def hold(self) -> None:
        """Hold the next COMMIT of any client, and end that client's connection."""
        self._ask(_HOLD)

    def let_pass(self) -> None:
        """Hold no further COMMIT."""
        self.held = self._ask(_LET_PASS)

    def deliver(self) -> None:
        """Send what is held to the server, and wait until it has answered."""
        self.held = self._ask(_DELIVER)

    def stop(self) -> None:
        """End the proxy."""
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)

    def _ask(self, what: str) -> bool:
        self._pipe.send(what)
        answer: bool = self._pipe.recv()
        return answer


class _Proxy:
    def __init__(self, listener: socket.socket, server: tuple[str, int], pipe: Connection) -> None:
        self._listener, self._server, self._pipe = listener, server, pipe
        self._selector = selectors.DefaultSelector()
        self._other: dict[socket.socket, socket.socket] = {}
        self._clients: set[socket.socket] = set()
        self._holding = False
        self._held: list[tuple[socket.socket, bytes]] = []

    def run(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._pipe, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj is self._pipe:
                    self._obey(self._pipe.recv())
                elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._other:
                    self._pass_on(key.fileobj)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        server = socket.create_connection(self._server)
        for one, other in ((client, server), (server, client)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._other[one] = other
            self._selector.register(one, selectors.EVENT_READ)
        self._clients.add(client)

    def _obey(self, what: str) -> None:
        self._holding = what == _HOLD
        if what == _DELIVER:
            for server, message in self._held:
                _send_and_close(server, message)
            self._held.clear()
        self._pipe.send(bool(self._held))

    def _pass_on(self, one: socket.socket) -> None:
        other = self._other[one]
        try:
            message = one.recv(1 << 16)
            # Both protocols end the message with the statement's text; PostgreSQL adds a NUL.
            if self._holding and one in self._clients and message.rstrip(b"\0").endswith(b"COMMIT"):
                self._holding = False
                self._held.append((other, message))
                self._forget(one)
                one.close()
            elif message:
                other.sendall(message)
                return
        except OSError:
            message = b""
        if not message:
            self._forget(one)
            one.close()
            other.close()

    def _forget(self, one: socket.socket) -> None:
        other = self._other.pop(one)
        self._other.pop(other, None)
        self._clients -= {one, other}
        for end in (one, other):
            self._selector.unregister(end)


def _send_and_close(server: socket.socket, message: bytes) -> None:
    server.settimeout(_LONGEST_ANSWER_S)
    try:
        server.sendall(message)
        server.recv(1 << 16)
    except OSError:
        pass  # the server has ended the connection meanwhile
    server.close()
