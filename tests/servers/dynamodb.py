"""DynamoDB as moto speaks it: tables on this machine, gone when their server is.

moto makes a transaction by copying tables aside and back, so its server answers one call at a time here: what two ask
at once is then atomic, as it is at Amazon's.
"""

import sys
import uuid
from pathlib import Path

from tests.servers.kinds import says
from tests.servers.server import Kind, Server


def prepare_dynamodb(server: Server) -> None:
    server.data.mkdir()


def dynamodb_command(server: Server) -> list[str]:
    return [sys.executable, str(Path(__file__).with_name("one_at_a_time.py")), str(server.port)]


def dynamodb_answers(server: Server) -> bool:
    return says(server.port, b"GET /moto-api/ HTTP/1.0\r\n\r\n", b" 200 ")


DYNAMODB = Kind(
    name="dynamodb",
    programs=("moto_server",),
    url="http://127.0.0.1:{port}",
    settings={},
    prepare=prepare_dynamodb,
    command=dynamodb_command,
    answers=dynamodb_answers,
)

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "weft", "AWS_SECRET_ACCESS_KEY": "of-tests"}
"""Without which the library asks nobody."""


def table_url(server: Server, name: str = "") -> str:
    """What weft opens a new table with."""
    return f"dynamodb://{name or f'weft-{uuid.uuid4().hex}'}?region=eu-west-1&endpoint={server.url}"
