"""S3 as moto speaks it: buckets on this machine, gone when their server is."""

import http.client
import sys
import uuid
from urllib.parse import quote

from tests.servers.kinds import says
from tests.servers.server import Kind, Server

KEY, SECRET = "weft", "a/secret+of=tests"


def prepare_s3(server: Server) -> None:
    server.data.mkdir()


def s3_command(server: Server) -> list[str]:
    return [sys.executable, server.programs["moto_server"], "-H", "127.0.0.1", "-p", str(server.port)]


def s3_answers(server: Server) -> bool:
    return says(server.port, b"GET /moto-api/ HTTP/1.0\r\n\r\n", b" 200 ")


S3 = Kind(
    name="s3",
    programs=("moto_server",),
    url="http://127.0.0.1:{port}",
    settings={},
    prepare=prepare_s3,
    command=s3_command,
    answers=s3_answers,
)


def new_bucket(server: Server, name: str = "") -> str:
    """Make an empty bucket; its name."""
    name = name or f"weft-{uuid.uuid4().hex}"
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("PUT", f"/{name}")
    answer = connection.getresponse()
    connection.close()
    assert answer.status == 200, f"the store did not make the bucket {name}: {answer.status}"
    return name


def bucket_url(server: Server, bucket: str, prefix: str = "") -> str:
    """What weft opens the bucket with."""
    return f"s3://{KEY}:{quote(SECRET, safe='')}@{bucket}/{prefix}?endpoint={server.url}"
