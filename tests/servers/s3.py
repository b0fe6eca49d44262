"""Two S3 servers: moto keeps objects in memory, and versitygw is a real gateway to a folder."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Self

from tests.servers.base import LOOPBACK, Server, ServerProcess, ServerUnavailable, accepts_connections, free_port


class S3Server(Server):
    """The base of both servers, with the values that a client needs."""

    access_key_id: ClassVar[str] = "test-key-id"
    secret_access_key: ClassVar[str] = "test-secret-key"
    region: ClassVar[str] = "us-east-1"

    def __init__(self, process: ServerProcess, port: int) -> None:
        self._process = process
        self.host = LOOPBACK
        self.port = port
        self.endpoint = f"{LOOPBACK}:{port}"
        self._client = self._new_client()

    def stop(self) -> None:
        self._client.close()
        self._process.stop()

    def create_bucket(self, name: str) -> None:
        self._client.create_bucket(Bucket=name)

    def list_keys(self, bucket: str, prefix: str = "") -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [item["Key"] for page in pages for item in page.get("Contents", [])]

    def _new_client(self) -> Any:
        import boto3  # type: ignore[import-untyped, unused-ignore]
        from botocore.config import Config  # type: ignore[import-untyped, unused-ignore]

        return boto3.client(
            "s3",
            endpoint_url=f"http://{self.endpoint}",
            aws_access_key_id=self.access_key_id,
            aws_secret_access_key=self.secret_access_key,
            region_name=self.region,
            config=Config(s3={"addressing_style": "path"}),
        )


class MotoS3(S3Server):
    """S3 in memory, in its own process so that it does not share the tests' interpreter lock."""

    name = "moto"
    how = "pip install 'moto[server]'"

    @classmethod
    def start(cls, folder: Path) -> Self:
        if find_spec("moto") is None or find_spec("flask") is None:
            raise ServerUnavailable(cls.name, cls.how)
        folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        process = ServerProcess([sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(port)], folder)
        process.wait_until(lambda: accepts_connections(port))
        return cls(process, port)


class VersityS3(S3Server):
    """S3 on a folder."""

    name = "versitygw"
    how = "make servers"

    @classmethod
    def start(cls, folder: Path) -> Self:
        program = cls.find_program("versitygw")
        objects = folder / "objects"
        objects.mkdir(parents=True)
        port = free_port()
        process = ServerProcess(
            [program, "--port", f"{LOOPBACK}:{port}", "--region", cls.region, "posix", objects],
            folder,
            env={"ROOT_ACCESS_KEY": cls.access_key_id, "ROOT_SECRET_KEY": cls.secret_access_key},
        )
        process.wait_until(lambda: accepts_connections(port))
        return cls(process, port)
