"""A headless Chromium, driven over its own protocol: it opens pages, types, presses buttons, and says what is wrong."""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.waiting import eventually
from weft.web.assets import assets

OPTIONS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
    "--remote-debugging-port=0",
]


class Browser:
    """One tab. ``complaints`` is what the console and the network say went wrong; ``asked`` is every address that
    pages have asked for."""

    def __init__(self, line: aiohttp.ClientWebSocketResponse) -> None:
        self._line, self._numbers = line, itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._loads = 0
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self._listening = asyncio.create_task(self._listen())

    async def open(self, address: str) -> None:
        seen = self._loads
        await self.say("Page.navigate", url=address)
        await self._loaded(seen)

    async def press(self, selector: str) -> None:
        """Press a button or a link, and wait for the page that comes of it."""
        seen = self._loads
        await self.run(f"document.querySelector({selector!r}).click()")
        await self._loaded(seen)

    async def type(self, selector: str, text: str) -> None:
        """Replace what is in a field, key by key."""
        await self.run(f"{{const field = document.querySelector({selector!r}); field.focus(); field.select()}}")
        await self.say("Input.insertText", text=text)

    async def text(self, selector: str = "main") -> str:
        return str(await self.run(f"document.querySelector({selector!r}).innerText"))

    async def run(self, script: str) -> Any:
        """What a line of JavaScript gives. The page itself may run none; this is not the page."""
        answer = await self.say("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def size(self, width: int, *, height: int = 900, dark: bool = False) -> None:
        await self.say(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        wishes = {"prefers-color-scheme": "dark" if dark else "light", "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wishes.items()]
        await self.say("Emulation.setEmulatedMedia", features=features)

    async def photograph(self, file: Path) -> None:
        picture = await self.say("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(picture["data"]))

    async def say(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self._line.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(60):
            return await self._answers[number]

    async def close(self) -> None:
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)

    async def _loaded(self, seen: int) -> None:
        await eventually(lambda: self._loads > seen, timeout=60)

    async def _listen(self) -> None:
        async for message in self._line:
            told = message.json()
            if "id" in told:
                answer = self._answers.pop(told["id"])
                if "error" in told:
                    answer.set_exception(AssertionError(str(told["error"])))
                else:
                    answer.set_result(told["result"])
            elif told["method"] == "Page.loadEventFired":
                self._loads += 1
            elif told["method"] == "Log.entryAdded":
                self.complaints.append(told["params"]["entry"]["text"])
            elif told["method"] == "Runtime.consoleAPICalled" and told["params"]["type"] in ("error", "warning"):
                self.complaints.append(str([each.get("value", each) for each in told["params"]["args"]]))
            elif told["method"] == "Network.requestWillBeSent":
                self.asked.append(told["params"]["request"]["url"])
            elif told["method"] == "Page.javascriptDialogOpening":
                self.complaints.append(f"a dialog: {told['params']['message']}")
            elif told["method"] == "Runtime.exceptionThrown":
                self.complaints.append(str(told["params"]["exceptionDetails"]))


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    """A new browser with one tab; a missing one skips on a laptop and fails in CI."""
    for asset in assets().values():
        assert asset.compressed or asset.content  # kept from here on, whoever builds the pages anew meanwhile
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail("chromium is not installed")
        pytest.skip("chromium is not installed")
    with tempfile.TemporaryDirectory(prefix="weft-browser-", ignore_cleanup_errors=True) as folder:
        process = await asyncio.create_subprocess_exec(
            program,
            *OPTIONS,
            f"--user-data-dir={folder}",
            "about:blank",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.ws_connect(await _tab(session, Path(folder)), max_msg_size=0) as line,
            ):
                browser = Browser(line)
                for domain in ("Page", "Runtime", "Log", "Network"):
                    await browser.say(f"{domain}.enable")
                yield browser
                await browser.close()
        finally:
            process.terminate()
            await process.wait()


async def _tab(session: aiohttp.ClientSession, folder: Path) -> str:
    """Where the first tab is spoken to, once there is one."""

    async def found() -> str:
        try:
            port = (folder / "DevToolsActivePort").read_text().splitlines()[0]
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                tabs = [each for each in await answer.json() if each["type"] == "page"]
        except (OSError, IndexError, aiohttp.ClientError):
            return ""
        return str(tabs[0]["webSocketDebuggerUrl"]) if tabs else ""

    return str(await eventually(found, timeout=60))
