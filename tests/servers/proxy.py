"""A TCP proxy between a client and a server, which breaks connections as a test requests."""

import asyncio
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Self

from tests.servers.base import LOOPBACK
from tests.servers.slow_down import answer_slow_down, is_http_request

Direction = Literal["to_server", "to_client"]
CHUNK = 65536


@dataclass(eq=False)
class Link:
    """The connection of one client, and its connection to the server."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter

    def drop(self) -> None:
        self.client.transport.abort()
        self.server.transport.abort()


@dataclass
class Cut:
    """The number of bytes that may still pass in one direction before the connection is dropped."""

    direction: Direction
    stay_down: bool
    left: int = 0
    link: Link | None = None


@dataclass
class Faults:
    """The faults that are set."""

    delay: float = 0
    down: bool = False
    refusals: float = 0
    cut: Cut | None = None
    after: bytes = b""
    needle: bytes = b""
    needle_stays_down: bool = False
    late: bytes = b""
    late_by: float | None = None


class FaultProxy:
    """Forwards a loopback `port` to the target in its own thread. Faults are set at run time.

    All state belongs to the event loop of that thread: a method changes the state there, and returns after the change.
    """

    def __init__(self, target_host: str, target_port: int) -> None:
        self._target = (target_host, target_port)
        self._links: set[Link] = set()
        self._faults = Faults()
        self.port = 0
        self.connections = 0  # includes connections that were dropped at once
        self.bytes_to_server = 0
        self.bytes_to_client = 0
        self.answers_503 = 0

    def __enter__(self) -> Self:
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(started)), name="fault-proxy")
        self._thread.start()
        started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._finished.set)
        self._thread.join()

    def delay(self, seconds: float) -> None:
        """Delay every chunk in both directions."""
        self._change(delay=seconds)

    def cut(self) -> None:
        """Drop all connections, and every new one at once, until `restore`."""
        self._in_loop(self._go_down)

    def cut_after(self, n_bytes: int, direction: Direction = "to_client", *, stay_down: bool = False) -> None:
        """Let `n_bytes` more bytes pass, then drop the connection that sends the next byte.

        The fault happens once. New connections work, unless `stay_down`, which acts like `cut` at that moment.
        """
        self._change(cut=Cut(direction, stay_down, left=n_bytes))

    def lose_answer_to(self, needle: bytes, *, after: bytes = b"", stay_down: bool = False) -> None:
        """Pass on the next request that contains `needle`, such as b"COMMIT", and drop its connection on the answer.

        The answer has reached the proxy, so the server has completed the request. The fault happens once. With `after`,
        it is the next such request after one that contains these bytes.
        """
        self._change(after=after, needle=needle, needle_stays_down=stay_down)

    def deliver_late(self, needle: bytes, seconds: float | None) -> None:
        """Drop the client that sends `needle` at once, and deliver the request after `seconds`, or never if None.

        This is a request that is still under way when its sender has given it up. The fault happens once.
        """
        self._change(late=needle, late_by=seconds)

    def answer_503(self, times: int | None = None) -> None:
        """Answer the next `times` HTTP requests with S3's "503 Slow Down"; None answers all until `restore`."""
        self._change(refusals=math.inf if times is None else times)

    def restore(self) -> None:
        """Remove all faults."""
        self._in_loop(lambda: setattr(self, "_faults", Faults()))

    def _change(self, **faults: object) -> None:
        self._in_loop(lambda: self._faults.__dict__.update(faults))

    def _in_loop(self, change: Callable[[], None]) -> None:
        async def run() -> None:
            change()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def _go_down(self) -> None:
        self._faults.down = True
        for link in self._links:
            link.drop()

    async def _run(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._finished = asyncio.Event()
        listener = await asyncio.start_server(self._serve, LOOPBACK, 0)
        self.port = listener.sockets[0].getsockname()[1]
        started.set()
        await self._finished.wait()
        listener.close()
        self._go_down()  # asyncio.run cancels the tasks that wait for a delay

    async def _serve(self, from_client: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            from_server, server = await asyncio.open_connection(*self._target)
        except OSError:
            client.transport.abort()  # the server is down: the client sees a connection that ends at once
            return
        link = Link(client, server)
        self._links.add(link)
        for writer in (client, server):
            writer.transport.set_write_buffer_limits(0)  # `drain` then returns once the kernel has all bytes
        if self._faults.down:
            link.drop()
        try:
            await asyncio.gather(self._pump(link, from_client, "to_server"), self._pump(link, from_server, "to_client"))
        finally:
            link.drop()
            self._links.discard(link)

    async def _pump(self, link: Link, source: asyncio.StreamReader, direction: Direction) -> None:
        target = link.server if direction == "to_server" else link.client
        try:
            while chunk := await source.read(CHUNK):
                await asyncio.sleep(self._faults.delay)
                if direction == "to_server" and self._refuses(chunk):
                    await answer_slow_down(chunk, source, link.client)
                    link.drop()
                    return
                if direction == "to_server" and self._faults.late and self._faults.late in chunk:
                    await self._deliver_late(chunk, link)
                    return
                cut = self._cut_within(chunk, link, direction)
                chunk = chunk if cut is None else chunk[: cut.left]
                self._count(chunk, direction)  # before it is sent, so that the receiver finds it counted
                target.write(chunk)
                await target.drain()
                if cut is not None:
                    link.drop()
                    if cut.stay_down:
                        self._go_down()
                    return
            target.write_eof()
        except (ConnectionError, asyncio.IncompleteReadError):
            link.drop()  # one end was reset or closed: drop the other end, too

    async def _deliver_late(self, chunk: bytes, link: Link) -> None:
        seconds, self._faults.late = self._faults.late_by, b""
        link.client.transport.abort()
        if seconds is not None:
            await asyncio.sleep(seconds)
            link.server.write(chunk)
            await link.server.drain()
            await asyncio.sleep(1)  # time for the server to process it
        link.drop()

    def _refuses(self, chunk: bytes) -> bool:
        if not self._faults.refusals or not is_http_request(chunk):
            return False
        self._faults.refusals -= 1
        self.answers_503 += 1
        return True

    def _cut_within(self, chunk: bytes, link: Link, direction: Direction) -> Cut | None:
        """Return the cut that this chunk reaches, if any."""
        faults = self._faults
        if direction == "to_server" and faults.after in chunk:
            faults.after = b""
        if direction == "to_server" and faults.needle and not faults.after and faults.needle in chunk:
            faults.cut = Cut("to_client", faults.needle_stays_down, link=link)
            faults.needle = b""
        cut = faults.cut
        if cut is None or cut.direction != direction or cut.link not in (None, link):
            return None
        if len(chunk) <= cut.left:
            cut.left -= len(chunk)
            return None
        faults.cut = None
        return cut

    def _count(self, chunk: bytes, direction: Direction) -> None:
        if direction == "to_server":
            self.bytes_to_server += len(chunk)
        else:
            self.bytes_to_client += len(chunk)
