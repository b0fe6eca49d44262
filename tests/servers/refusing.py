"""An S3 proxy that refuses to delete some objects."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from tests.servers.base import LOOPBACK

_OBJECT = re.compile(rb"<Object>\s*<Key>(.*?)</Key>\s*</Object>", re.S)


@contextmanager
def refusing_to_delete(endpoint: str, refuses: Callable[[str], bool]) -> Iterator[str]:
    """Yield the endpoint of a proxy that passes on all requests except some deletions.

    Args:
        endpoint: The endpoint of the real server.
        refuses: Returns whether the object with a key must not be deleted.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            refused: list[bytes] = []
            if self.command == "POST" and "delete" in self.path.partition("?")[2]:
                refused = [key for key in _OBJECT.findall(body) if refuses(key.decode())]
                body = _OBJECT.sub(lambda match: b"" if match[1] in refused else match[0], body)
            self.answer(body, refused)

        do_PUT = do_POST = do_DELETE = do_GET

        def do_HEAD(self) -> None:
            self.answer(b"", [])

        def answer(self, body: bytes, refused: list[bytes]) -> None:
            errors = b"".join(
                b"<Error><Key>" + key + b"</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
                for key in refused
            )
            if refused and b"<Object>" not in body:
                self.reply(200, {}, b"<DeleteResult>" + errors + b"</DeleteResult>")
                return
            upstream = HTTPConnection(endpoint)
            headers = {name: value for name, value in self.headers.items() if name.lower() != "content-md5"}
            upstream.request(self.command, self.path, body, headers | {"Content-Length": str(len(body))})
            answer = upstream.getresponse()
            body = answer.read().replace(b"</DeleteResult>", errors + b"</DeleteResult>")
            self.reply(answer.status, dict(answer.getheaders()), body)
            upstream.close()

        def reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in ("transfer-encoding", "connection", "server", "date", "content-length"):
                    self.send_header(name, value)
            length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
            self.send_header("Content-Length", length)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"{LOOPBACK}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
