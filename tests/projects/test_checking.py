"""Code that misbehaves when it is looked at: each ends with a named reason, and none of its processes is left."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.projects.making import SPIDER, project, written
from tests.waiting import eventually
from weft.errors import Rejected
from weft.projects.checking import MOST_OUTPUT, Checker
from weft.projects.formats import Layout
from weft.projects.model import Argument, Spider

SLEEPING = ["sh", "-c", "while sleep 1; do :; done", "FOLDER"]
LAYOUT = Layout(format="zip", settings="shop.settings")


async def rejection(folder: Path, *, seconds: float = 60.0, **changed: str) -> Rejected:
    with pytest.raises(Rejected) as problem:
        await Checker(seconds=seconds).check(written(folder, project(**changed)), LAYOUT)
    return problem.value


async def test_the_spiders_are_told_with_their_arguments(tmp_path: Path) -> None:
    found = (await Checker().check(written(tmp_path, project()), LAYOUT)).spiders
    country = Argument("country", "'de'", "str", "two letters")
    assert found == (Spider("prices", "Prices of all products.\n\ncountry: two letters", (country,), True),)


BROKEN: dict[str, tuple[dict[str, Any], str, str]] = {
    "settings that raise": ({"settings": "raise ValueError('no luck')"}, "ValueError: no luck", "settings.py"),
    "a spider that raises": ({"spider": "1 / 0"}, "ZeroDivisionError", "prices.py"),
    "a module that is missing": ({"spider": "import nowhere_to_be_found"}, "nowhere_to_be_found", "prices.py"),
    "a syntax error": ({"spider": "def ("}, "SyntaxError", "prices.py"),
    "sys.exit": ({"spider": "import sys; sys.exit('enough')"}, "enough", "prices.py"),
    "two spiders of one name": ({"spider": SPIDER + SPIDER.replace("Prices(", "Others(")}, "same name", "'prices'"),
    "a spider module that is none": ({"settings": "SPIDER_MODULES = ['nowhere']"}, "nowhere", "ModuleNotFoundError"),
}


@pytest.mark.parametrize("what", BROKEN)
async def test_what_raises_is_rejected_with_its_traceback(tmp_path: Path, what: str) -> None:
    changed, said, where = BROKEN[what]
    problem = await rejection(tmp_path, **changed)
    assert str(problem).startswith("the code was not deployed: ")
    assert said in str(problem)
    assert where in problem.traceback


async def test_no_spiders_are_none(tmp_path: Path) -> None:
    assert "it has no spiders" in str(await rejection(tmp_path, spider=""))


async def test_a_name_that_steers_a_terminal_is_refused(tmp_path: Path) -> None:
    spider = SPIDER.replace('"prices"', '"\\x1b[31mred"')
    assert "it must be 1 to 200 characters that print" in str(await rejection(tmp_path, spider=spider))


async def test_code_that_ends_its_process_is_rejected(tmp_path: Path) -> None:
    assert "ended the process that imported it, with code 3" in str(
        await rejection(tmp_path / "exit", spider="import os; os.write(2, b'farewell'); os._exit(3)")
    )
    killed = await rejection(tmp_path / "kill", spider="import os; os.write(2, b'farewell'); os.kill(os.getpid(), 9)")
    assert "by signal 9" in str(killed)
    assert killed.traceback.endswith("farewell")


async def test_code_that_hangs_is_ended_and_others_go_on_meanwhile(tmp_path: Path) -> None:
    hanging = asyncio.create_task(rejection(tmp_path / "one", seconds=8.0, spider="import time; time.sleep(1000)"))
    found = (await Checker().check(written(tmp_path / "two", project()), LAYOUT)).spiders
    assert [each.name for each in found] == ["prices"]
    assert "not been imported after 8 s" in str(await hanging)


async def test_garbage_on_its_output_is_no_answer(tmp_path: Path) -> None:
    noise = 'print("{", end=""); print(\'{"spiders": 7}\'); print("{" * 1000, end="")\n'
    found = (await Checker().check(written(tmp_path, project(spider=noise + SPIDER)), LAYOUT)).spiders
    assert [each.name for each in found] == ["prices"]


async def test_a_flood_on_its_output_hides_no_answer(tmp_path: Path) -> None:
    flood = f"import os\nfor _ in range(200): os.write(1, b'x' * {MOST_OUTPUT // 100})\n"
    found = (await Checker().check(written(tmp_path, project(spider=flood + SPIDER)), LAYOUT)).spiders
    assert [each.name for each in found] == ["prices"]


@pytest.mark.parametrize("leave", ["pass", "os.setsid()", "os.setsid(); os.closerange(0, 10)"])
async def test_what_was_forked_is_ended_too(tmp_path: Path, leave: str) -> None:
    forking = f"import os, time\nif os.fork() == 0:\n    {leave}\n    time.sleep(1000)\n"
    found = (await Checker().check(written(tmp_path, project(spider=forking + SPIDER)), LAYOUT)).spiders
    assert [each.name for each in found] == ["prices"]
    await eventually(lambda: not looking_at(tmp_path))


async def test_a_program_that_was_started_elsewhere_is_ended_too(tmp_path: Path) -> None:
    """One that has left its group, its parent and its environment."""
    starting = f"import os\nif os.fork() == 0:\n    os.setsid()\n    os.execve('/bin/sh', {SLEEPING!r}, {{}})\n"
    starting = starting.replace("FOLDER", str(tmp_path))
    assert (await Checker().check(written(tmp_path, project(spider=starting + SPIDER)), LAYOUT)).spiders
    await eventually(lambda: not looking_at(tmp_path))


def looking_at(folder: Path) -> list[str]:
    """The processes whose command names the folder."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if os.fsencode(folder) in each.read_bytes():
                found.append(each.parent.name)
        except OSError:
            continue
    return found


async def test_nothing_of_the_environment_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_SECRET_KEY", "kAnArY")
    spider = "import os\nassert not [each for each in os.environ.values() if 'kAnArY' in each], 'seen'\n" + SPIDER
    assert (await Checker().check(written(tmp_path, project(spider=spider)), LAYOUT)).spiders


async def test_what_it_writes_is_gone_afterwards(tmp_path: Path) -> None:
    spider = "import os\nopen('here', 'w').write('x')\nraise ValueError(os.getcwd())\n"
    problem = await rejection(tmp_path, spider=spider)
    place = problem.traceback.strip().rpartition("ValueError: ")[2]
    assert os.path.isabs(place)
    assert not os.path.exists(place)


async def test_required_packages_are_looked_for_in_the_interpreter_that_is_lent(tmp_path: Path) -> None:
    lent: list[tuple[str, str]] = []

    @asynccontextmanager
    async def interpreters(requirements: Path, lock: str) -> AsyncIterator[Path]:
        lent.append((requirements.name, lock))
        yield Path(sys.executable)
        lent.append(("given back", lock))

    layout = Layout(format="zip", settings="shop.settings", requirements="requirements.txt", lock="abc")
    folder = written(tmp_path, project() | {"requirements.txt": "scrapy\n"})
    assert (await Checker(interpreters).check(folder, layout)).spiders
    assert lent == [("requirements.txt", "abc"), ("given back", "abc")]
