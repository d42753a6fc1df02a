"""What an archive is, and what an unfit one is told."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.cases import for_each
from tests.projects.making import below, project, written
from weft.errors import Invalid
from weft.projects.layout import CodeLayout, layout_of

CODE = {name: text for name, text in project().items() if name != "scrapy.cfg"}
ENTRY = "[scrapy]\nsettings = shop.settings\n"
EGG = CODE | {"EGG-INFO/PKG-INFO": "Name: shop\n", "EGG-INFO/entry_points.txt": ENTRY}
WHEEL = CODE | {"shop-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\n", "shop-1.0.dist-info/entry_points.txt": ENTRY}
PYPROJECT = '[project]\nname = "shop"\n[project.entry-points.scrapy]\nsettings = "shop.settings"\n'
SDIST = below("shop-1.0", CODE | {"PKG-INFO": "Name: shop\n", "pyproject.toml": PYPROJECT})
IN_SRC = below("shop-1.0/src", CODE) | {"shop-1.0/pyproject.toml": PYPROJECT}
OLD_SDIST = below("shop-1.0", CODE) | {"shop-1.0/shop.egg-info/entry_points.txt": ENTRY}

LAYOUTS = {
    "an egg": (EGG, "zip", "egg", ""),
    "a wheel": (WHEEL, "zip", "wheel", ""),
    "an sdist": (SDIST, "tar", "sdist", "shop-1.0"),
    "an sdist with src": (IN_SRC, "tar", "sdist", "shop-1.0/src"),
    "an sdist of setup.py": (OLD_SDIST, "tar", "sdist", "shop-1.0"),
    "a zip": (project(), "zip", "zip", ""),
    "a zip of a folder": (below("shop-main", project()), "zip", "zip", "shop-main"),
}


@for_each("what", LAYOUTS)
def test_every_format_is_known_by_what_is_in_it(tmp_path: Path, what: str) -> None:
    files, kind, form, root = LAYOUTS[what]
    assert layout_of(written(tmp_path, files), kind) == CodeLayout(format=form, settings="shop.settings", root=root)


@pytest.mark.parametrize("top", ["", "shop-main/"])
def test_requirements_are_found_beside_the_settings(tmp_path: Path, top: str) -> None:
    files = {f"{top}{name}": text for name, text in (project() | {"requirements.txt": "scrapy==2.11\n"}).items()}
    found = layout_of(written(tmp_path, files), "zip")
    assert (found.requirements, found.lock) == (
        f"{top}requirements.txt",
        hashlib.sha256(b"scrapy==2.11\n").hexdigest(),
    )


UNFIT = {
    "nothing": ({"readme": ""}, "zip", "scrapy.cfg"),
    "no scrapy.cfg": (project(cfg=None), "zip", "[settings] default = <package>.settings in scrapy.cfg"),
    "an egg without entry point": (CODE | {"EGG-INFO/PKG-INFO": ""}, "zip", "entry_points="),
    "a wheel without entry point": (CODE | {"shop-1.0.dist-info/WHEEL": ""}, "zip", "project.entry-points.scrapy"),
    "no settings module": (project(settings=None), "zip", "there is no such module in the zip"),
    "a settings module that is none": (project(cfg="[settings]\ndefault = ../etc/passwd\n"), "zip", "name of a module"),
    "a broken scrapy.cfg": (project(cfg="default = shop.settings\n"), "zip", "scrapy.cfg: it cannot be read"),
    "a broken pyproject": (CODE | {"pyproject.toml": "[project"}, "zip", "it must be TOML"),
}


@for_each("what", UNFIT)
def test_what_is_missing_is_said(tmp_path: Path, what: str) -> None:
    files, kind, said = UNFIT[what]
    with pytest.raises(Invalid) as problem:
        layout_of(written(tmp_path, files), kind)
    assert said in str(problem.value)


def test_a_scrapy_cfg_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (written(tmp_path, project()) / "scrapy.cfg").write_bytes(b"\xff\xfe[settings]")
    with pytest.raises(Invalid, match="it must be text in UTF-8"):
        layout_of(tmp_path, "zip")


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = " + "1" * 5_000, "a = "], ids=["deep", "long", "broken"])
def test_a_pyproject_that_nobody_can_read_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(Invalid, match="it must be TOML"):
        layout_of(tmp_path, "zip")


def test_requirements_of_any_size_are_not_read(tmp_path: Path) -> None:
    for name, content in project().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    with (tmp_path / "requirements.txt").open("wb") as file:
        file.truncate(10_000_000_000)
    with pytest.raises(Invalid, match=r"requirements.txt.* it may have 1000000 bytes"):
        layout_of(tmp_path, "zip")
