"""Strangers who knock with WebSockets leave no mark in the log."""

from __future__ import annotations

import logging

import aiohttp
import pytest

from tests.api.acting import Visitor
from tests.conftest import on_sqlite


@on_sqlite
async def test_a_refused_socket_is_answered_and_nothing_is_logged(
    nobody: Visitor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for headers, status in (({}, 401), ({"Origin": "https://evil.test"}, 403), ({"Host": "evil.test"}, 421)):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await nobody._session.ws_connect(f"{nobody.address}/v1/events/ws", headers=headers)
        assert refused.value.status == status
    assert caplog.records == []
