"""A headless Chromium, driven over its own protocol: it opens pages, types, presses buttons, and says what is wrong.

One Chromium serves all tests of a process; each test has a browser context of its own: no cookies, nothing stored.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
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
    "--no-startup-window",
    "--remote-debugging-port=0",
    "--remote-debugging-pipe",
]
WITH_A_PIPE = 'exec "$@" 3<&0 4>/dev/null </dev/null'
"""Chromium ends itself when its pipe, number 3, is closed: also when the process of the tests was killed."""
START_SECONDS = 60.0
WIDTH, HEIGHT = 1280, 900


class Browser:
    """One tab. ``complaints`` is what the console and the network say went wrong; ``asked`` is every URL that pages
    have asked for."""

    def __init__(self, line: aiohttp.ClientWebSocketResponse) -> None:
        self._line, self._numbers = line, itertools.count(1)
        self._session = ""
        self._context = ""
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
        return await self._send(method, params, self._session)

    async def attach(self) -> None:
        """Open the tab in a context of its own; what is said from here on is said to the tab."""
        context = await self._send("Target.createBrowserContext", {"disposeOnDetach": True})
        self._context = context["browserContextId"]
        wanted = {"url": "about:blank", "browserContextId": self._context, "width": WIDTH, "height": HEIGHT}
        tab = await self._send("Target.createTarget", wanted)
        attached = await self._send("Target.attachToTarget", {"targetId": tab["targetId"], "flatten": True})
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.say(f"{domain}.enable")

    async def close(self) -> None:
        """Throw the context away, with its tab, its cookies and its storage."""
        try:
            if self._context:
                await self._send("Target.disposeBrowserContext", {"browserContextId": self._context})
        finally:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    async def _send(self, method: str, params: dict[str, Any], session: str = "") -> Any:
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params}
        await self._line.send_json(message | ({"sessionId": session} if session else {}))
        async with asyncio.timeout(60):
            return await self._answers[number]

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
            elif told.get("sessionId", "") != self._session:
                continue
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


class Chromium:
    """The process that all tests share, in a folder of its own."""

    def __init__(self, program: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="weft-browser-"))
        self.process = subprocess.Popen(
            ["sh", "-c", WITH_A_PIPE, "sh", program, *OPTIONS, f"--user-data-dir={self._folder}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.url = self._found()

    def end(self) -> None:
        if self.process.stdin:
            self.process.stdin.close()
        self.process.wait(START_SECONDS)
        deadline = time.monotonic() + START_SECONDS
        while self._folder.exists() and time.monotonic() < deadline:
            shutil.rmtree(self._folder, ignore_errors=True)  # its other processes may write a little longer
            time.sleep(0.02)

    def _found(self) -> str:
        """Where the browser is spoken to, once it says so."""
        file = self._folder / "DevToolsActivePort"
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            lines = file.read_text().splitlines() if file.exists() else []
            if len(lines) == 2:
                return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
            time.sleep(0.02)
        raise AssertionError(f"chromium did not answer within {START_SECONDS:.0f} s; it is {self.process.poll()}")


@cache
def chromium() -> Chromium:
    """The one of this process; a missing one skips on a laptop and fails in CI."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail("chromium is not installed")
        pytest.skip("chromium is not installed")
    return Chromium(program)


def end_chromium() -> None:
    if chromium.cache_info().currsize:
        chromium().end()
        chromium.cache_clear()


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    """A tab in a new context, in which nobody has ever been."""
    for asset in assets().values():
        assert asset.compressed or asset.content  # kept from here on, whoever builds the pages anew meanwhile
    url = (await asyncio.to_thread(chromium)).url
    async with aiohttp.ClientSession() as session, session.ws_connect(url, max_msg_size=0) as line:
        browser = Browser(line)
        try:
            await browser.attach()
            yield browser
        finally:
            await browser.close()
