"""The IAM policy in docs/storages.md suffices to write, maintain and read a lake on a server that enforces it."""

import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ducklake_orch import DuckLake
from ducklake_orch.errors import DuckLakeOrchError
from tests.docs.pages import DOCS, blocks
from tests.servers.base import ServerUnavailable
from tests.servers.s3 import MotoS3
from tests.support.granted_work import read_everything, write_and_maintain

WRITER: dict[str, Any] = json.loads(next(code for _, code in blocks(DOCS / "storages.md", "json")))
FILES, LIST = WRITER["Statement"]
# To delete many objects in one request, Amazon requires the permission on each object, and moto that on the bucket.
WRITER["Statement"].append({"Effect": "Allow", "Action": "s3:DeleteObject", "Resource": LIST["Resource"]})
READER = {"Version": WRITER["Version"], "Statement": [FILES | {"Action": "s3:GetObject"}]}
APPENDER = {"Version": WRITER["Version"], "Statement": [FILES | {"Action": ["s3:GetObject", "s3:PutObject"]}, LIST]}
Open = Callable[..., DuckLake]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoS3]:
    """A separate server, because policies apply to all its clients."""
    try:
        running = MotoS3.start(tmp_path_factory.mktemp("iam"))
    except ServerUnavailable as error:
        pytest.skip(str(error))
    yield running
    running.stop()


def _enforce(server: MotoS3, after_requests: str) -> None:
    address, how = f"http://{server.endpoint}/moto-api/reset-auth", {"Content-Type": "text/plain"}
    request = urllib.request.Request(address, data=after_requests.encode(), headers=how, method="POST")
    urllib.request.urlopen(request).close()


@pytest.fixture
def open_lake(server: MotoS3, tmp_path: Path) -> Iterator[Callable[[dict[str, Any]], Open]]:
    """Yield a function that creates a user with a policy, and returns a function that opens the lake as that user."""
    import boto3  # type: ignore[import-untyped, unused-ignore]

    _enforce(server, "inf")
    server.create_bucket("company-lake")
    login = {"aws_access_key_id": server.access_key_id, "aws_secret_access_key": server.secret_access_key}
    iam = boto3.client("iam", endpoint_url=f"http://{server.endpoint}", region_name=server.region, **login)

    def as_user(policy: dict[str, Any]) -> Open:
        _enforce(server, "inf")
        name = f"user-{len(iam.list_users()['Users'])}"
        iam.create_user(UserName=name)
        iam.put_user_policy(UserName=name, PolicyName="lake", PolicyDocument=json.dumps(policy))
        key = iam.create_access_key(UserName=name)["AccessKey"]
        _enforce(server, "0")

        def opened(prefix: str = "sales", **fields: Any) -> DuckLake:
            storage = {"type": "s3", "bucket": "company-lake", "prefix": prefix, "region": server.region}
            storage |= {"endpoint": f"http://{server.endpoint}", "access_key_id": key["AccessKeyId"]}
            storage |= {"secret_access_key": key["SecretAccessKey"]}
            return DuckLake.from_url("lake", catalog=f"sqlite:///{tmp_path}/{prefix}.sqlite", storage=storage, **fields)

        return opened

    yield as_user
    iam.close()


def test_the_iam_policy_suffices_to_write_maintain_and_read(open_lake: Callable[[dict[str, Any]], Open]) -> None:
    writer = open_lake(WRITER)
    write_and_maintain(writer(create_if_missing=True))
    with pytest.raises(DuckLakeOrchError):
        write_and_maintain(writer("other", create_if_missing=True))  # a prefix outside the policy
    appender = open_lake(APPENDER)()
    appender.write(appender.read("sales.items"), "sales.orders", mode="append")
    reader = open_lake(READER)
    read_everything(reader(read_only=True))
    with pytest.raises(DuckLakeOrchError):
        reader().write(reader(read_only=True).read("sales.items"), "sales.items", mode="append")
