"""What an executor's tests need: a run's attempt, and a log that can be waited on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft.ports import ReadyCode, Work

THIS_MACHINE = ("127.0.0.0/8", "::1/128")

PATIENCE_SECONDS = 20.0


class Log:
    """Keeps what a run prints, and tells when something is in it."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._news = asyncio.Event()

    def write(self, data: bytes) -> None:
        self.data += data
        self._news.set()

    async def shows(self, text: bytes) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while text not in self.data:
                self._news.clear()
                await self._news.wait()


def attempt(
    folder: Path,
    spec: Mapping[str, Any],
    *,
    log: Log | None = None,
    params: Mapping[str, Any] | None = None,
    grace_seconds: float = 10.0,
    code: ReadyCode | None = None,
    env: Mapping[str, str] | None = None,
    project: str = "shop",
    secrets: tuple[str, ...] = (),
    ports: tuple[int, ...] | None = None,
) -> Work:
    return Work(
        run_id=12,
        attempt=3,
        project=project,
        task="prices",
        spec=spec,
        params=params or {},
        correlation_id="c-1",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        log=log or Log(),
        folder=folder,
        grace_seconds=grace_seconds,
        code=code,
        env=env or {},
        ports=ports,
        allowed_networks=THIS_MACHINE,
        secrets=secrets,
    )
