"""Code that misbehaves when it is looked at: each ends with a named reason, and none of its processes is left."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.projects.making import SPIDER, project, written
from tests.waiting import eventually
from weft.errors import Rejected
from weft.projects.checker import MOST_OUTPUT, CodeChecker
from weft.projects.layout import CodeLayout
from weft.projects.model import Argument, Spider

SLEEPING = ["sh", "-c", "while sleep 1; do :; done", "FOLDER"]
LAYOUT = CodeLayout(format="zip", settings="shop.settings")


async def rejection(folder: Path, *, seconds: float = 60.0, **changed: str) -> Rejected:
    with pytest.raises(Rejected) as problem:
        await CodeChecker(seconds=seconds).check(written(folder, project(**changed)), LAYOUT)
    return problem.value


async def test_the_spiders_are_told_with_their_arguments(tmp_path: Path) -> None:
    found = (await CodeChecker().check(written(tmp_path, project()), LAYOUT)).spiders
    country = Argument("country", "'de'", "str", "two letters")
    assert found == (Spider("prices", "Prices of all products.\n\ncountry: two letters", (country,), True),)


STANDS_OUT = """import os
import shutil
from os import environ, getenv
from pathlib import Path

import scrapy

OUT = "/data/out"
DB = os.environ.get("MY_DB")


class Old(scrapy.Spider):
    name = "old"
    custom_settings = {"FILES_STORE": "/srv/files", "FEEDS": {f"{OUT}/feed.jl": {}, "mine.jl": {}}}

    def start_requests(self):
        open("/tmp/x.csv", "w")
        open(OUT + "/all", mode="ab")
        (Path("/var/lib") / "x").write_text("")
        Path("~/x").open("w")
        os.makedirs(os.path.join(os.path.expanduser("~me"), "x"))
        shutil.copy("a", "../b")
        getenv("TOKEN", "none")
        return environ["PROXY_URL"], "FLAG" in os.environ

    def fine(self):
        open("x.csv", "w"), open("/etc/hosts"), open("/dev/null", "w"), open(self.path, "w")
        os.environ["SET"] = os.environ["HOME"] + os.environ.get("WEFT_RUN_ID", "")
        return os.environ[self.name]


class New(scrapy.Spider):
    name = "new"

    def start_requests(self):
        return []

    async def start(self):
        yield {}
"""


async def test_what_stands_out_in_the_source_is_told_with_file_and_line(tmp_path: Path) -> None:
    settings = "import os\n\nSPIDER_MODULES = ['shop.spiders']\nJOBDIR = '/srv/jobs'\n"
    files = project(spider=STANDS_OUT, settings=settings) | {
        "tests/test_it.py": "open('/x', 'w')",
        "setup.py": "open('/x', 'w')",
        "shop/broken.txt.py": "def (",
    }
    found = (await CodeChecker().check(written(tmp_path, files), LAYOUT)).warnings
    assert [(each.file, each.line, each.code, each.name) for each in found] == [
        ("shop/settings.py", 4, "outside_folder", "/srv/jobs"),
        *(
            ("shop/spiders/prices.py", line, code, name)
            for line, code, name in [
                (9, "environment", "MY_DB"),
                (14, "outside_folder", "/data/out"),
                (14, "outside_folder", "/srv/files"),
                (16, "start_requests", "Old"),
                (17, "outside_folder", "/tmp/x.csv"),
                (19, "outside_folder", "/var/lib"),
                (20, "outside_folder", "~/x"),
                (21, "outside_folder", "~me"),
                (22, "outside_folder", "../b"),
                (23, "environment", "TOKEN"),
                (24, "environment", "FLAG"),
                (24, "environment", "PROXY_URL"),
            ]
        ),
    ]
    below = CodeLayout(format="zip", settings="shop.settings", root="src")
    inside = {f"src/{name}": text for name, text in files.items()}
    found = (await CodeChecker().check(written(tmp_path / "below", inside), below)).warnings
    assert found[0].file == "src/shop/settings.py"


async def test_a_variable_that_code_needs_when_it_is_imported_is_named_unless_it_is_given(tmp_path: Path) -> None:
    needs = "import os\nSPIDER_MODULES = ['shop.spiders']\nDB = os.environ['MY_DB']\n"
    problem = await rejection(tmp_path, settings=needs)
    assert "its code needs MY_DB in its environment; spider_env names what reaches it" in str(problem)
    folder = written(tmp_path, project(settings=needs))
    found = await CodeChecker(variables={"MY_DB": "pg"}).check(folder, LAYOUT, spider_env=["MY_*"])
    assert found.settings["DB"] == "pg"
    with pytest.raises(Rejected) as refused:
        await CodeChecker(variables={"MY_TABLE": "pages"}).check(folder, LAYOUT, spider_env=["MY_*"])
    why = "needs MY_DB in its environment; spider_env names it, but it is not set where the code is checked: set it"
    assert why in str(refused.value)


async def test_how_long_runs_may_take_to_close_is_refused_where_it_is_no_number(tmp_path: Path) -> None:
    settings = 'SPIDER_MODULES = ["shop.spiders"]\nWEFT_GRACE_SECONDS = "soon"\n'
    assert "WEFT_GRACE_SECONDS is 'soon'; it must be a number from 0 to 3600" in str(
        await rejection(tmp_path, settings=settings)
    )


BROKEN: dict[str, tuple[dict[str, Any], str, str]] = {
    "settings that raise": ({"settings": "raise ValueError('no luck')"}, "ValueError: no luck", "settings.py"),
    "a spider that raises": ({"spider": "1 / 0"}, "ZeroDivisionError", "prices.py"),
    "a module that is missing": ({"spider": "import nowhere_to_be_found"}, "nowhere_to_be_found", "prices.py"),
    "a syntax error": ({"spider": "def ("}, "SyntaxError", "prices.py"),
    "sys.exit": ({"spider": "import sys; sys.exit('enough')"}, "enough", "prices.py"),
    "two spiders of one name": ({"spider": SPIDER + SPIDER.replace("Prices(", "Others(")}, "same name", "'prices'"),
    "a way to be warm that is none": (
        {"settings": "SPIDER_MODULES = ['shop.spiders']\nWEFT_WARM = 'all'"},
        'WEFT_WARM must be "packages" or "project" (got \'all\')',
        "WEFT_WARM",
    ),
    "a spider module that is none": ({"settings": "SPIDER_MODULES = ['nowhere']"}, "nowhere", "ModuleNotFoundError"),
}


@pytest.mark.parametrize("what", BROKEN)
async def test_what_raises_is_rejected_with_its_traceback(tmp_path: Path, what: str) -> None:
    changed, said, where = BROKEN[what]
    problem = await rejection(tmp_path, **changed)
    assert str(problem).startswith("the code was not deployed: ")
    assert said in str(problem)
    assert where in problem.traceback
    assert not [place for place in (tmp_path, sys.prefix, Path(__file__).parents[2]) if str(place) in problem.traceback]


async def test_what_it_prints_shows_no_place_of_this_machine(tmp_path: Path) -> None:
    spider = "import os, scrapy, sys\nprint(__file__, scrapy.__file__, os.__file__, file=sys.stderr)\nos._exit(3)"
    problem = await rejection(tmp_path, spider=spider)
    assert problem.traceback.split()[0] == "shop/spiders/prices.py"
    assert all(each.startswith("lib/python3") for each in problem.traceback.split()[1:3])


async def test_code_that_is_looked_at_yields_the_processor_to_weft(tmp_path: Path) -> None:
    weights = "{os.getpriority(os.PRIO_PROCESS, 0)} {open('/proc/self/autogroup').read()}"
    if not Path("/proc/self/autogroup").exists():  # this system does not weigh sessions
        weights = "{os.getpriority(os.PRIO_PROCESS, 0)}  nice 10"
    says = f'import os; raise SystemExit(f"{weights}")'
    problem = await rejection(tmp_path, spider=says)
    assert re.search(r"10 \S* nice 10", problem.traceback), problem.traceback


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
    found = (await CodeChecker().check(written(tmp_path / "two", project()), LAYOUT)).spiders
    assert [each.name for each in found] == ["prices"]
    assert "not been imported after 8 s" in str(await hanging)


async def test_garbage_on_its_output_is_no_answer(tmp_path: Path) -> None:
    noise = 'print("{", end=""); print(\'{"spiders": 7}\'); print("{" * 1000, end="")\n'
    found = (await CodeChecker().check(written(tmp_path, project(spider=noise + SPIDER)), LAYOUT)).spiders
    assert [each.name for each in found] == ["prices"]


async def test_a_flood_on_its_output_hides_no_answer(tmp_path: Path) -> None:
    flood = f"import os\nfor _ in range(200): os.write(1, b'x' * {MOST_OUTPUT // 100})\n"
    found = (await CodeChecker().check(written(tmp_path, project(spider=flood + SPIDER)), LAYOUT)).spiders
    assert [each.name for each in found] == ["prices"]


@pytest.mark.parametrize("leave", ["pass", "os.setsid()", "os.setsid(); os.closerange(0, 10)"])
async def test_what_was_forked_is_ended_too(tmp_path: Path, leave: str) -> None:
    forking = f"import os, time\nif os.fork() == 0:\n    {leave}\n    time.sleep(1000)\n"
    found = (await CodeChecker().check(written(tmp_path, project(spider=forking + SPIDER)), LAYOUT)).spiders
    assert [each.name for each in found] == ["prices"]
    await eventually(lambda: not looking_at(tmp_path))


async def test_a_program_that_was_started_elsewhere_is_ended_too(tmp_path: Path) -> None:
    """One that has left its group, its parent and its environment."""
    starting = f"import os\nif os.fork() == 0:\n    os.setsid()\n    os.execve('/bin/sh', {SLEEPING!r}, {{}})\n"
    starting = starting.replace("FOLDER", str(tmp_path))
    assert (await CodeChecker().check(written(tmp_path, project(spider=starting + SPIDER)), LAYOUT)).spiders
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
    assert (await CodeChecker().check(written(tmp_path, project(spider=spider)), LAYOUT)).spiders


async def test_what_it_writes_is_gone_afterwards(tmp_path: Path) -> None:
    spider = "import os\nopen('here', 'w').write('x')\nraise ValueError(os.getcwd())\n"
    problem = await rejection(tmp_path, spider=spider)
    place = problem.traceback.strip().rpartition("ValueError: ")[2]
    assert os.path.isabs(place)
    assert not os.path.exists(place)


async def test_required_packages_are_looked_for_in_the_interpreter_that_is_lent(tmp_path: Path) -> None:
    lent: list[tuple[str, str]] = []

    @asynccontextmanager
    async def interpreters(
        requirements: Path, lock: str, *, may_build: bool, min_isolation: str
    ) -> AsyncIterator[Path]:
        assert not may_build
        lent.append((requirements.name, lock))
        yield Path(sys.executable)
        lent.append(("given back", lock))

    layout = CodeLayout(format="zip", settings="shop.settings", requirements="requirements.txt", lock="abc")
    folder = written(tmp_path, project() | {"requirements.txt": "scrapy\n"})
    assert (await CodeChecker(interpreters).check(folder, layout)).spiders
    assert lent == [("requirements.txt", "abc"), ("given back", "abc")]
