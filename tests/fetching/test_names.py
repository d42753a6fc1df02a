from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

from tests.waiting import eventually
from weft.fetching import resolving
from weft.fetching.resolving import SystemResolver


async def test_this_machine_knows_itself() -> None:
    assert set(await SystemResolver().resolve("localhost", 80)) <= {"127.0.0.1", "::1"}
    assert await SystemResolver().resolve("127.0.0.1", 80) == ["127.0.0.1"]


@pytest.mark.parametrize("name", ["a..b", "x" * 300])
async def test_a_name_that_nobody_has_is_an_error(name: str) -> None:
    with pytest.raises(OSError):
        await SystemResolver().resolve(name, 80)


async def test_dead_names_hold_up_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up, let_go = socket.getaddrinfo, threading.Event()

    def slow(host: str, *values: Any, **named: Any) -> Any:
        if host.startswith("dead"):
            let_go.wait()
        return look_up("127.0.0.1", *values, **named)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    monkeypatch.setattr(resolving, "IDLE_SECONDS", 0.05)
    resolver = SystemResolver()
    dead = [asyncio.create_task(resolver.resolve(f"dead{number}", 80)) for number in range(20)]
    assert await resolver.resolve("alive", 80) == ["127.0.0.1"]
    for task in dead[:10]:
        task.cancel()
    assert await resolver.resolve("alive", 80) == ["127.0.0.1"]
    let_go.set()
    assert await asyncio.gather(*dead[10:]) == [["127.0.0.1"]] * 10
    await eventually(lambda: resolver._threads == 0)
    assert await resolver.resolve("alive", 80) == ["127.0.0.1"], "threads that have ended are replaced"
