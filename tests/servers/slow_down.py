"""The answer of an overloaded S3 server."""

import asyncio
import re

REQUEST_LINE = re.compile(rb"[A-Z]+ \S+ HTTP/1\.[01]\r\n")
CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
EXPECTS_100 = re.compile(rb"\r\nexpect: *100-continue", re.IGNORECASE)

BODY = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n'
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message>"
    b"<RequestId>fault-proxy</RequestId></Error>"
)


def is_http_request(chunk: bytes) -> bool:
    """Return whether a chunk begins a request, which need not be the first one of its connection."""
    return REQUEST_LINE.match(chunk) is not None


async def answer_slow_down(received: bytes, client: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
    """Read the rest of the request, answer it, and wait until the client closes: a reset could overtake the answer."""
    if b"\r\n\r\n" not in received:
        received += await client.readuntil(b"\r\n\r\n")
    head, _, body = received.partition(b"\r\n\r\n")
    length = CONTENT_LENGTH.search(head)
    if length and not EXPECTS_100.search(head):
        await client.readexactly(max(0, int(length[1]) - len(body)))
    lines = (
        b"HTTP/1.1 503 Slow Down",
        b"Content-Type: application/xml",
        b"Content-Length: %d" % len(BODY),
        b"Connection: close",
    )
    answer.write(b"\r\n".join(lines) + b"\r\n\r\n" + (b"" if head.startswith(b"HEAD ") else BODY))
    answer.write_eof()
    await client.read()
