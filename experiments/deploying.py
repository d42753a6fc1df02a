"""Deploys over HTTP of a project whose spider yields the version that it was packed as, and how to cut them off."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.spiders import SETTINGS, project
from weft.clock import Moment
from weft.projects.packing import pack
from weft.runs.model import NewRun, RunSpec

PROJECT = "shop"
SPIDER = "which"
SPIDERS = '''
import scrapy


class Which(scrapy.Spider):
    """Yields the version that it is."""

    name = "which"

    async def start(self):
        yield {"version": "%s"}
'''

BALLAST_BYTES = 1_500_000
"""Of noise in each archive, so that it arrives in many pieces."""

ANSWER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Archive:
    """The code of one version, ready to be sent."""

    version: str
    data: bytes

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


def archive(version: str) -> Archive:
    """An archive like no other, also of the same version."""
    packed = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        place = project(Path(folder), SPIDERS % version, SETTINGS)
        (place / "shop" / "ballast").write_bytes(os.urandom(BALLAST_BYTES))
        pack(place, packed)
    return Archive(version, packed.getvalue())


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway as one who deploys sees it."""

    port: int
    token: str

    async def deploy(self, sent: Archive) -> int | None:
        """The status of the answer; None where none came."""
        return (await self.call("POST", f"?version={sent.version}", sent.data))[0]

    async def delete(self, version: str) -> int | None:
        return (await self.call("DELETE", f"/{version}"))[0]

    async def use(self, version: str) -> int | None:
        return (await self.call("POST", f"/{version}/use"))[0]

    async def cut_off(self, sent: Archive, offset: int, cut: Callable[[], None]) -> None:
        """Send so much of an archive, and then ``cut``."""
        reader, writer = await self._open("POST", f"?version={sent.version}", len(sent.data))
        try:
            writer.write(sent.data[:offset])
            await writer.drain()
            cut()
            await reader.read()
        except OSError:
            pass
        finally:
            writer.close()

    async def call(self, method: str, path: str, body: bytes = b"") -> tuple[int | None, Any]:
        """The status and the body of the answer; nothing where the gateway dies before it."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reader, writer = await self._open(method, path, len(body))
                try:
                    writer.write(body)
                    await writer.drain()
                    answer = await reader.read()
                finally:
                    writer.close()
        except OSError:
            return None, None
        head, _, content = answer.partition(b"\r\n\r\n")
        status = int(head.split()[1]) if head.startswith(b"HTTP/") else None
        return status, json.loads(content) if content else None

    async def _open(self, method: str, path: str, size: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = [
            f"{method} /v1/projects/{PROJECT}/versions{path} HTTP/1.1",
            f"Host: 127.0.0.1:{self.port}",
            f"Authorization: Bearer {self.token}",
            f"Content-Type: application/{'octet-stream' if size else 'json'}",
            f"Content-Length: {size}",
            "Connection: close",
        ]
        writer.write("\r\n".join([*head, "", ""]).encode())
        return reader, writer


def run_of(version: str | None, *, not_before: Moment | None = None) -> NewRun:
    """A run of a version, or of the current one."""
    spec: dict[str, Any] = {"spider": SPIDER} | ({"version": version} if version else {})
    return NewRun(project=PROJECT, task=SPIDER, kind="spider", spec=RunSpec(spec=spec), not_before=not_before)
