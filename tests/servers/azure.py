"""Azure Blob Storage: azurite, and a minimal signed REST client that creates containers and lists them."""

import base64
import hashlib
import hmac
import urllib.request
from email.utils import formatdate
from pathlib import Path
from typing import Self
from urllib.parse import urlencode
from xml.etree import ElementTree

from tests.servers.base import LOOPBACK, Server, ServerProcess, accepts_connections, free_port

# The account that every azurite has. Microsoft publishes its key, so it is not a secret.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
API_VERSION = "2021-12-02"


class AzuriteServer(Server):
    """One storage account."""

    name = "azurite"
    how = "make servers"
    account_name = ACCOUNT
    account_key = KEY

    def __init__(self, process: ServerProcess, port: int) -> None:
        self._process = process
        self.host = LOOPBACK
        self.port = port
        self.endpoint = f"{LOOPBACK}:{port}"
        self.connection_string = (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};"
            f"BlobEndpoint=http://{self.endpoint}/{ACCOUNT};"
        )

    @classmethod
    def start(cls, folder: Path) -> Self:
        program = cls.find_program("azurite-blob")
        folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        # DuckDB's client uses a newer version of the protocol than azurite knows.
        options = ["--skipApiVersionCheck", "--disableTelemetry", "--silent", "--blobHost", LOOPBACK]
        # Azurite closes connections that were idle for five seconds, while Azure waits for minutes. Azurite's own
        # option for this has no effect, so a script sets the timeout.
        patch = folder / "keep_alive.js"
        patch.write_text(
            "const { Server } = require('http');\n"
            "Object.defineProperty(Server.prototype, 'keepAliveTimeout', { get: () => 300000, set: () => {} });\n"
        )
        command: list[str | Path] = [program, *options, "--blobPort", str(port), "--location", folder]
        process = ServerProcess(command, folder, env={"NODE_OPTIONS": f"--require {patch}"})
        process.wait_until(lambda: accepts_connections(port))
        return cls(process, port)

    def stop(self) -> None:
        self._process.stop()

    def create_container(self, name: str) -> None:
        self._request("PUT", name, {"restype": "container"})

    def list_blobs(self, container: str, prefix: str = "") -> list[str]:
        names: list[str] = []
        marker = ""
        while True:
            query = {"comp": "list", "marker": marker, "prefix": prefix, "restype": "container"}
            page = ElementTree.fromstring(self._request("GET", container, {k: v for k, v in query.items() if v}))
            names += [blob.findtext("Name", "") for blob in page.iter("Blob")]
            marker = page.findtext("NextMarker", "")
            if not marker:
                return names

    def _request(self, method: str, container: str, query: dict[str, str]) -> bytes:
        """Send a request without a body, signed with the account's key ("Shared Key")."""
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": API_VERSION}
        path = f"/{ACCOUNT}/{container}"
        signed = [
            method,
            *[""] * 11,  # Content-Length, Content-Type, Date, If-… and Range are all empty in this request
            *(f"{key}:{value}" for key, value in sorted(headers.items())),
            f"/{ACCOUNT}{path}",  # azurite also has the account in the path, so it appears twice
            *(f"{key}:{value}" for key, value in sorted(query.items())),
        ]
        digest = hmac.new(base64.b64decode(KEY), "\n".join(signed).encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        url = f"http://{self.endpoint}{path}?{urlencode(query)}"
        with urllib.request.urlopen(urllib.request.Request(url, method=method, headers=headers), timeout=30) as answer:
            body: bytes = answer.read()
            return body
