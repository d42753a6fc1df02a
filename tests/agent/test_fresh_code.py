"""What a forked run imports by itself, and what it shares with others of its zygote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agent.spiders import SETTINGS, SHARED, write_project
from tests.agent.starting import zygote

SHOP = """
import os
import sys
import time

import scrapy
<MORE>

class Spider(scrapy.Spider):
    name = "<NAME>"
    began = time.time()

    async def start(self):
        imported = getattr(sys, "mod" + "ules")  # written so that the project is not taken for one that asks for all
        others = sorted(name for name in imported if name.startswith("shop."))
        yield {"began": self.began, "modules": others, "told": <TOLD>, "pid": os.getpid()}
"""

PACKAGE = """
import os

IMPORTED_IN = os.getpid()
MODE = os.environ.get("MODE", "none")
"""


def spider(name: str, *, more: str = "", told: str = "None") -> str:
    return SHOP.replace("<MORE>", more).replace("<NAME>", name).replace("<TOLD>", told)


def project(folder: Path, *, settings: str = SETTINGS, **spiders: str) -> Path:
    """A project with a module for each spider; the name of a file may have two underscores for a slash."""
    code = write_project(folder, settings=settings, spiders="")
    (code / "shop" / "spiders" / "all.py").unlink()
    for name, text in spiders.items():
        path = code / "shop" / (name.replace("__", "/") + ".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return code


def outside(folder: Path, **packages: str) -> str:
    """Settings that find these packages, which are not the project's own."""
    folder.mkdir()
    for name, text in packages.items():
        (folder / f"{name}.py").write_text(text)
    return SETTINGS + f"import sys\nsys.path.append({str(folder)!r})\n"


def test_code_at_module_level_runs_once_for_each_run(tmp_path: Path) -> None:
    code = project(tmp_path / "code", spiders__one=spider("one"))
    with zygote(code, tmp_path) as warm:
        assert len({warm.run("one").items[0]["began"] for _ in range(3)}) == 3
    shared = project(tmp_path / "shared", settings=SHARED, spiders__one=spider("one"))
    with zygote(shared, tmp_path / "whole") as whole:
        assert len({whole.run("one").items[0]["began"] for _ in range(3)}) == 1


def test_a_run_imports_the_module_of_its_spider_and_no_other(tmp_path: Path) -> None:
    code = project(tmp_path / "code", spiders__one=spider("one"), spiders__two=spider("two"))
    with zygote(code, tmp_path) as warm:
        assert warm.run("two").items[0]["modules"] == ["shop.settings", "shop.spiders", "shop.spiders.two"]
        assert "it has one, two" in warm.run("three").end["message"]


REGISTERED = "from shop.registry import NAMES\nNAMES.append(__name__)"
KEPT_BY_CLASS = "from shop.registry import Base\nBase.kept[__name__] = time.time()"
SETS_VARIABLE = "os.environ['SEEN'] = os.environ.get('SEEN', '') + __name__"
SUBCLASSES = "from shop.registry import Base\nclass Mine(Base): pass"
REGISTRY = "NAMES = []\n\nclass Base:\n    kept = {}\n"


WALKED = ["shop.spiders.one", "shop.spiders.three", "shop.spiders.two"]


@pytest.mark.parametrize(
    ("more", "told", "expected"),
    [
        (REGISTERED, "NAMES", WALKED),
        (KEPT_BY_CLASS, "list(Base.kept)", WALKED),
        (SETS_VARIABLE, "os.environ['SEEN']", "".join(WALKED)),
        (SUBCLASSES, "[each.__module__ for each in Base.__subclasses__()]", WALKED),
    ],
)
def test_spiders_whose_modules_see_each_other_are_all_imported_as_under_scrapy(
    tmp_path: Path, more: str, told: str, expected: object
) -> None:
    spiders = {f"spiders__{name}": spider(name, more=more, told=told) for name in ("one", "two", "three")}
    code = project(tmp_path / "code", registry=REGISTRY, **spiders)
    with zygote(code, tmp_path) as warm:
        (item,) = warm.run("two").items
    assert item["told"] == expected
    assert set(WALKED) <= set(item["modules"])


LOADER = """
from scrapy.spiderloader import SpiderLoader

class Loader(SpiderLoader):
    def load(self, spider_name):
        return super().load(spider_name.removeprefix("my-"))
"""
ADDON = """
import os

class Switch:
    @classmethod
    def update_pre_crawler_settings(cls, settings):
        if os.environ.get("SEASON"):
            settings.set("SPIDER_MODULES", ["shop.season"], "cmdline")
"""


@pytest.mark.parametrize(
    ("addition", "name", "env", "told"),
    [
        ("", "same", {}, "b"),  # the one whose module comes last
        ("SPIDER_MODULES = ['shop.spiders', 'shop.more']", "one", {}, "more"),
        ("SPIDER_MODULES = ['shop.more', 'shop.spiders']", "one", {}, "one"),
        ("SPIDER_MODULES = ['shop.more', 'shop.spiders']", "other", {}, "other"),
        ("SPIDER_LOADER_CLASS = 'shop.loader.Loader'", "my-one", {}, "one"),
        ("ADDONS = {'shop.addon.Switch': 1}", "one", {"SEASON": "winter"}, "in season"),
    ],
)
def test_a_name_finds_the_spider_that_scrapy_would_find(
    tmp_path: Path, addition: str, name: str, env: dict[str, str], told: str
) -> None:
    code = project(
        tmp_path / "code",
        settings=SETTINGS + addition,
        spiders__a=spider("same", told="'a'"),
        spiders__b=spider("same", told="'b'"),
        spiders__one=spider("one", told="'one'"),
        more__other=spider("other", told="'other'"),
        more__one=spider("one", told="'more'"),
        season__one=spider("one", told="'in season'"),
        season____init__="",
        loader=LOADER,
        addon=ADDON,
    )
    with zygote(code, tmp_path) as warm:
        assert warm.run(name, env=env).items[0]["told"] == told


def test_packages_of_others_are_imported_once_for_all_runs_as_the_project_sets_them_up(tmp_path: Path) -> None:
    more = "import os; os.environ['MODE'] = 'quiet'; import parcels"
    one = spider("one", more=more, told="[parcels.IMPORTED_IN == os.getpid(), parcels.MODE]")
    code = project(tmp_path / "code", settings=outside(tmp_path / "site", parcels=PACKAGE), spiders__one=one)
    with zygote(code, tmp_path) as warm:
        assert warm.run("one").items[0]["told"] == [False, "quiet"]


@pytest.mark.parametrize(
    "unfit",
    [
        "import threading, time; threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
        "from twisted.internet import asyncioreactor; asyncioreactor.install()",
        "import shop.settings",
        "import words",
    ],
)
def test_a_package_that_no_process_could_be_forked_with_is_imported_by_the_run(tmp_path: Path, unfit: str) -> None:
    told = "[unfit.IMPORTED_IN == os.getpid(), parcels.IMPORTED_IN == os.getpid()]"
    settings = outside(tmp_path / "site", parcels=PACKAGE, unfit=PACKAGE + unfit, words="")
    code = project(
        tmp_path / "code", settings=settings, spiders__one=spider("one", more="import unfit, parcels", told=told)
    )
    (code / "words.py").write_text("")  # the project's own, in the place of another one
    with zygote(code, tmp_path) as warm:
        assert warm.run("one").items[0]["told"] == [True, False]


def test_nothing_of_the_child_that_looks_at_the_project_is_left(tmp_path: Path) -> None:
    left = tmp_path / "left"
    forks = f"""
if not os.environ.get("SCRAPY_JOB") and (child := os.fork()) == 0:
    import time
    time.sleep(600)
elif not os.environ.get("SCRAPY_JOB"):
    open({str(left)!r}, "w").write(str(child))
"""
    code = project(tmp_path / "code", settings=SETTINGS + forks, spiders__one=spider("one"))
    with zygote(code, tmp_path) as warm:
        assert warm.first.get("ready"), warm.first
        child = json.loads(left.read_text())
        assert not is_running(child)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_project_that_ends_the_process_which_imports_it_is_told_so(tmp_path: Path) -> None:
    code = project(tmp_path / "code", settings="import os\nos._exit(3)", spiders__one=spider("one"))
    with zygote(code, tmp_path) as cold:
        assert cold.first == {"failed": "importing the project ended its process (3)"}
