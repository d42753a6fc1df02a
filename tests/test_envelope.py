"""The one shape of messages."""

import json

import pytest

from tests.cases import for_each
from weft.envelope import Envelope
from weft.errors import Invalid

GOOD = {
    "service": "shop",
    "action": "crawl",
    "payload": {"url": "https://example.org"},
    "timestamp": "2026-01-02T03:04:05.000006Z",
    "correlation_id": "c-1",
}


def test_an_envelope_survives_the_wire() -> None:
    envelope = Envelope.of("runs_ready", {"queues": {"é": 1}}, at=1_700_000_000_123_456, correlation_id="c")
    assert Envelope.decode(envelope.encode()) == envelope


def test_an_envelope_is_plain_json_with_five_fields() -> None:
    envelope = Envelope.of("runs_ready", {"n": 1}, at=1_700_000_000_123_456, correlation_id="c")
    assert json.loads(envelope.encode()) == {
        "service": "weft",
        "action": "runs_ready",
        "payload": {"n": 1},
        "timestamp": "2023-11-14T22:13:20.123456Z",
        "correlation_id": "c",
    }


def test_a_correlation_id_may_be_left_out() -> None:
    given = {name: value for name, value in GOOD.items() if name != "correlation_id"}
    assert Envelope.decode(json.dumps(given).encode()).correlation_id == ""


@pytest.mark.parametrize("missing", ["service", "action", "payload", "timestamp"])
def test_every_other_field_is_needed(missing: str) -> None:
    given = {name: value for name, value in GOOD.items() if name != missing}
    with pytest.raises(Invalid, match=missing):
        Envelope.decode(json.dumps(given).encode())


@for_each(
    "wrong",
    [
        {"service": ""},
        {"action": 1},
        {"payload": []},
        {"payload": "text"},
        {"timestamp": "yesterday"},
        {"timestamp": "2026-01-02T03:04:05"},
        {"correlation_id": None},
        {"colour": "red"},
    ],
)
def test_a_wrong_or_unknown_field_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(Invalid, match=next(iter(wrong))):
        Envelope.decode(json.dumps({**GOOD, **wrong}).encode())


@for_each("broken", [b"", b"{", b"null", b"[]", b"\xff\xfe", b'{"service": "\xff"}', b"[" * 100_000])
def test_what_is_no_envelope_at_all_is_refused(broken: bytes) -> None:
    with pytest.raises(Invalid, match="it must be a JSON object with service, action, payload"):
        Envelope.decode(broken)
