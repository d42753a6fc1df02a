"""Tries every escape from every kind of user code: ``python -m tests.workers.escaping <folder> <Landlock> <kind> …``.

It is a process of its own, so that it can be another user, and stands for a worker: it starts each kind of user code as
weft does, by weft's own executors, checks and installations. It prints what was reached by each kind, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from tests.agent import escapes
from tests.executing import Log, attempt
from tests.spiders import SETTINGS, SHARED, project, ready
from tests.waiting import eventually
from tests.workers.packages import requirements, sdist, wheel, wheels
from weft import bubblewrap, user_code
from weft.adapters.executors import _zygote
from weft.adapters.executors.shell import ShellExecutor
from weft.adapters.executors.spider import SpiderExecutor
from weft.errors import CodeNotReady, Rejected
from weft.projects.checker import CodeChecker
from weft.projects.layout import CodeLayout
from weft.workers.environments import Environments

SOURCE = Path(escapes.__file__).read_text()
TOLD = re.compile(r"ESCAPES of (\d+): (.*?)\.")
WHEELS = "wheels"
MISSING = re.compile(r"MISSING (.*)")
PATIENCE_SECONDS = 240
"""No escape is about time, and user code gives way to whatever else this machine does."""
WITH_NETWORK = " with network "
"""Stands in the name of a kind before the setting ``network`` of its project."""
BY_THE_KERNEL = "have the kernel signal the worker"
SPIDER = """
import scrapy

class Escapes(scrapy.Spider):
    name = "escapes"

    async def start(self):
        from shop import escapes
        print(escapes.told({place}))
        return
        yield
"""


class Targets:
    """What there is to reach: a data directory, another run, sockets, a terminal, a worker."""

    def __init__(self, folder: Path, number: int, network: str = "all") -> None:
        """``network`` is the setting of the project that tries it, or ``gateway`` for the port that there is."""
        self.folder, self.heard = folder, False
        data = folder / "data"
        other = data / "runs" / "w1" / "code-other" / "7-1"
        code = data / "code" / "other" / "files"
        tmp = folder / "tmp-of-another"
        for made in (other, code, tmp):
            made.mkdir(parents=True)
        for file in (data / "weft.db", data / "keys", other / "order.json", code / "spider.py", tmp / "file"):
            file.write_text("not yours")
        for name in ("rename", "delete", "empty"):
            (data / f"to-{name}").write_text("not yours")
        data.chmod(0o700)
        self._shm = Path(f"/dev/shm/weft-escape-{os.getpid()}-{number}")
        self._shm.write_text("not yours")
        # What it were to hold open would keep whoever reads the output of this process waiting.
        none = subprocess.DEVNULL
        self._victim = subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=none, stderr=none)
        self._named, self._abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        self._named.bind(os.path.relpath(data / "socket"))
        abstract = f"weft-escape-{os.getpid()}-{number}"
        self._abstract.bind(f"\0{abstract}")
        self._gateway = socket.create_server(("127.0.0.1", 0))
        for each in (self._named, self._abstract):
            each.listen()
        self._free = held_port()
        port = self._gateway.getsockname()[1]
        self.ports = user_code.ports_of(
            (port,) if network == "gateway" else msgspec.convert(network, user_code.Network)
        )
        self._terminal = pty.openpty()
        self._open = os.open(data / "keys", os.O_RDONLY)
        os.set_inheritable(self._open, True)
        signal_number = signal.SIGRTMIN + number
        signal.signal(signal_number, self._hear)
        self.place: dict[str, Any] = {
            "data": str(data),
            "own": "",
            "tmp": str(tmp),
            "home": os.environ["HOME"],
            "shm": str(self._shm),
            "worker": os.getpid(),
            "victim": self._victim.pid,
            "signal": signal_number,
            "socket": str(data / "socket"),
            "abstract": abstract,
            "port": port,
            "free_port": self._free[0].getsockname()[1],
            "terminal": os.ttyname(self._terminal[1]),
            "package": user_code.__file__,
        }

    def _hear(self, *_: object) -> None:
        self.heard = True

    def close(self) -> None:
        self._victim.kill()
        self._victim.wait()
        for each in (self._named, self._abstract, self._gateway, *self._free):
            each.close()
        for number in (*self._terminal, self._open):
            os.close(number)
        self._shm.unlink(missing_ok=True)


def held_port() -> tuple[socket.socket, socket.socket]:
    """A port that no other process is given meanwhile, over TCP and UDP; whoever shares it as these do may bind it."""
    while True:
        stream, datagrams = socket.socket(), socket.socket(type=socket.SOCK_DGRAM)
        for each in (stream, datagrams):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        stream.bind(("127.0.0.1", 0))
        try:
            datagrams.bind(stream.getsockname())
        except OSError:  # somebody has that number for datagrams
            stream.close()
            datagrams.close()
        else:
            return stream, datagrams


async def shell(targets: Targets, isolation: str) -> str:
    folder, log = targets.folder / "run", Log()
    folder.mkdir()
    (folder / "escapes.py").write_text(SOURCE)
    place = json.dumps({**targets.place, "own": str(folder)})
    argv = [sys.executable, "-I", str(folder / "escapes.py"), place]
    ended = await ShellExecutor().execute(
        attempt(folder, {"argv": argv, "isolation": isolation}, log=log, ports=targets.ports)
    )
    return f"{log.data.decode()}\n{ended}"


async def spider(targets: Targets, how: str) -> str:
    """``warm`` and ``cold`` are how it is started; a ``zygote`` tries it while it imports a project that is shared."""
    runs, log = targets.folder / "runs", Log()
    folder = runs / "12-3"
    folder.mkdir(parents=True)
    place = {**targets.place, "own": str(runs if how == "zygote" else folder)}
    at_import = ""
    if how == "zygote":
        # A child that looks at the settings first may write nowhere.
        telling = f"    open({str(runs / 'told')!r}, 'w').write(escapes.told({place!r}))"
        at_import = f"from shop import escapes\ntry:\n{telling}\nexcept OSError:\n    pass\n"
    elif how == "cold":
        at_import = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    place_of_run = {**targets.place, "own": str(folder)}
    made = project(targets.folder / "project", SPIDER.format(place=place_of_run))
    (made / "shop" / "escapes.py").write_text(SOURCE)
    (made / "shop" / "settings.py").write_text((SHARED if at_import else SETTINGS) + at_import)
    code = ready(made)
    executor = SpiderExecutor()
    spec = {"spider": "escapes", **({"isolation": "L2"} if how == "L2" else {})}
    try:
        ended = await executor.execute(attempt(folder, spec, code=code, log=log, ports=targets.ports))
    finally:
        executor.release()
    printed = log.data.decode()
    assert ("cold start" in printed) is (how == "cold"), printed
    if how == "zygote":
        return (runs / "told").read_text()
    missing = (ended.result or {}).get("isolation_missing", [])
    assert ("weft: network: " in printed) is (targets.ports is not None), printed
    lines = [line for line in printed.splitlines() if not line.startswith(("weft: cold start: ", "weft: network: "))]
    told = lines[0].removeprefix("weft: isolation ").split("; ")[1:] if lines[0].startswith("weft: isolation ") else []
    assert told == missing, f"{told} in the first line of the log, and {missing} in the result"
    return f"{printed}\n{ended}\nMISSING {json.dumps(missing)}"


async def learning(targets: Targets) -> str:
    """The process that looks at a project for its zygote; it may write nowhere, so its output tells."""
    runs = targets.folder / "runs"
    runs.mkdir()
    place = {**targets.place, "own": str(runs)}
    made = project(
        targets.folder / "project", more=f"from shop import escapes\nprint(escapes.told({place!r}), flush=True)\n"
    )
    (made / "shop" / "escapes.py").write_text(SOURCE)
    executor = SpiderExecutor()
    try:
        await executor.prepare(ready(made), runs, {}, targets.ports)
        (zygote,) = [task.result() for task in executor._zygotes._all.values()]
        return str(
            await eventually(lambda: TOLD.search(said := b"".join(zygote._said).decode()) and said, PATIENCE_SECONDS)
        )
    finally:
        executor.release()


async def check(targets: Targets) -> str:
    place = f"{{**{targets.place!r}, 'own': os.environ['HOME']}}"
    raising = f"import os\nfrom shop import escapes\nraise RuntimeError(escapes.told({place}))\n"
    made = project(targets.folder / "project", raising)
    (made / "shop" / "escapes.py").write_text(SOURCE)
    try:
        await CodeChecker(seconds=PATIENCE_SECONDS).check(
            made, CodeLayout(format="zip", settings="shop.settings"), ports=targets.ports
        )
    except Rejected as rejected:
        return rejected.traceback
    return "its code was not rejected"


async def install(targets: Targets) -> str:
    found_in = wheels(targets.folder / WHEELS)
    place = f"{{**{targets.place!r}, 'own': os.environ['HOME']}}"
    sdist(found_in, "escapes", f"{SOURCE.partition('if __name__')[0]}\nraise SystemExit(told({place}))\n")
    return await _installed(targets, may_build=True)


async def install_wheels(targets: Targets) -> str:
    """A wheel brings code that a Python executes as it starts, so also the one that looks at what was installed."""
    found_in = wheels(targets.folder / WHEELS)
    place = f"{{**{targets.place!r}, 'own': os.environ['HOME']}}"
    with zipfile.ZipFile(wheel(found_in, "starter", "1.0"), "a") as opened:
        opened.writestr("escapes.py", f"{SOURCE.partition('if __name__')[0]}\nprint(told({place}), flush=True)\n")
        opened.writestr("starter.pth", "import os, escapes; os._exit(3)\n")
    return await _installed(targets, may_build=False, needs="starter")


async def _installed(targets: Targets, *, may_build: bool, needs: str = "escapes") -> str:
    file = requirements(targets.folder / "requirements.txt", needs)
    try:
        await Environments(targets.folder / "environments").python_for(*file, may_build=may_build)
    except CodeNotReady as refused:
        return refused.why
    return "it was installed"


KINDS: dict[str, Callable[[Targets], Awaitable[str]]] = {
    "no sandbox": lambda targets: shell(targets, "L0"),
    "shell": lambda targets: shell(targets, "L1"),
    "shell at L2": lambda targets: shell(targets, "L2"),
    "spider, warm": lambda targets: spider(targets, "warm"),
    "spider, cold": lambda targets: spider(targets, "cold"),
    "spider at L2": lambda targets: spider(targets, "L2"),
    "spider's packages": lambda targets: spider(targets, "zygote"),
    "spider, learning child": learning,
    "check": check,
    "install": install,
    "install, wheels only": install_wheels,
}


async def tried(kind: str, folder: Path, number: int) -> Any:
    folder.mkdir()
    name, _, network = kind.partition(WITH_NETWORK)
    targets = Targets(folder, number, network or "all")
    try:
        said = await KINDS[name](targets)
    finally:
        targets.close()
    found = TOLD.search(said)
    if found is None:
        return said
    names = [name for name in found[2].split(", ") if name]
    missing = MISSING.search(said)
    return {
        "tried": int(found[1]),
        "reached": sorted([*names, BY_THE_KERNEL] if targets.heard else names),
        **({} if missing is None else {"missing": json.loads(missing[1])}),
    }


async def main(folder: Path, kinds: list[str]) -> dict[str, Any]:
    places = {kind: folder / str(number) for number, kind in enumerate(kinds)}
    found_in = " ".join(str(place / WHEELS) for kind, place in places.items() if kind.startswith("install"))
    os.environ.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=found_in, PIP_CONFIG_FILE=os.devnull)
    works = [tried(kind, place, number) for number, (kind, place) in enumerate(places.items())]
    return dict(zip(kinds, await asyncio.gather(*works), strict=True))


if __name__ == "__main__":
    user_code.newest_landlock = int(sys.argv[2])
    _zygote.READY_WITHIN_SECONDS = bubblewrap.PATIENCE_SECONDS = PATIENCE_SECONDS
    sys.stdout.write(json.dumps(asyncio.run(main(Path(sys.argv[1]), sys.argv[3:]))) + "\n")
