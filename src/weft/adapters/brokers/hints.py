"""What a ring says on the wire: an envelope that names queues and how many runs became ready in each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from weft import clock
from weft.envelope import Envelope
from weft.errors import Invalid

ACTION = "runs_ready"
LARGEST = 7900
"""Bytes in one hint: PostgreSQL carries less than 8000."""

_ROOM = LARGEST - 200


def encode(queues: Mapping[str, int]) -> bytes:
    """One hint, however long."""
    return Envelope.of(ACTION, {"queues": dict(queues)}, at=clock.now()).encode()


def encode_parts(queues: Mapping[str, int]) -> list[bytes]:
    """As many hints as are needed for each to stay within ``LARGEST``."""
    return [encode(part) for part in _parts(queues)]


def decode(data: bytes) -> dict[str, int]:
    """Which queues were rung, and for how many runs. None named means: any of them. Raises ``Invalid``."""
    envelope = Envelope.decode(data)
    try:
        return msgspec.convert(envelope.payload.get("queues"), dict[str, int])
    except msgspec.ValidationError as error:
        raise Invalid("the hint", data, f"its payload must have queues with a count each ({error})") from error


def _parts(queues: Mapping[str, int]) -> Iterator[dict[str, int]]:
    part: dict[str, int] = {}
    size = 0
    for queue, count in queues.items():
        length = len(msgspec.json.encode(queue)) + len(str(count)) + 2
        if length > _ROOM:
            yield {}  # a name that fits nowhere: let everyone look
            continue
        if size + length > _ROOM:
            yield part
            part, size = {}, 0
        part[queue] = count
        size += length
    if part:
        yield part
