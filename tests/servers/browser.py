"""Drives a browser through its debugging protocol: opens a page, waits, clicks, and takes a picture."""

import base64
import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.servers.base import LOOPBACK, ServerProcess
from tests.servers.chromium import Chromium

_PATIENCE_S = 60


class Browser:
    """One page of a running browser.

    Args:
        socket: The page's debugging socket.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._asked = 0

    def open(self, address: str, shows: str) -> None:
        """Open an address, and wait until its page shows a text."""
        self._ask("Page.navigate", url=address)
        self.wait_for(shows)

    def wait_for(self, shows: str) -> None:
        """Wait until the page shows a text."""
        ends = time.monotonic() + _PATIENCE_S
        while not self.value(f"document.body?.innerText.includes({json.dumps(shows)}) ?? false"):
            assert time.monotonic() < ends, f"{shows!r} is not shown:\n{self.value('document.body?.innerText')}"
            time.sleep(0.2)

    def click(self, label: str) -> None:
        """Click on the button with a label; if there are several, on the last one."""
        condition = f"node.innerText.trim() === {json.dumps(label)}"
        button = f"[...document.querySelectorAll('button')].findLast(node => {condition})"
        self.value(f"{button}.click()")

    def value(self, script: str) -> Any:
        """Return the value of a JavaScript expression."""
        answer = self._ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def picture(self, path: Path) -> None:
        """Take a picture of the page."""
        path.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot")["data"]))

    def _ask(self, method: str, **parameters: Any) -> Any:
        self._asked += 1
        self._socket.send(json.dumps({"id": self._asked, "method": method, "params": parameters}))
        while (answer := json.loads(self._socket.recv(_PATIENCE_S))).get("id") != self._asked:
            continue  # an event, not the answer
        assert "error" not in answer, answer
        return answer["result"]


@contextmanager
def browsing(folder: Path, *, width: int, height: int) -> Iterator[Browser]:
    """Start a browser for a `with` block.

    Args:
        folder: The folder of the profile, which is created.
        width: The width of the window.
        height: The height of the window.
    """
    folder.mkdir()
    command = Chromium.command(folder, width=width, height=height)
    process = ServerProcess([*command, "--remote-debugging-port=0", "about:blank"], folder)
    try:
        process.wait_until(lambda: (folder / "DevToolsActivePort").exists())
        port = (folder / "DevToolsActivePort").read_text("utf-8").split()[0]
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/json/list") as answer:
            page = next(target for target in json.load(answer) if target["type"] == "page")
        with connect(page["webSocketDebuggerUrl"], max_size=None) as socket:
            yield Browser(socket)
    finally:
        process.stop()
