"""The layout of an unpacked archive: its format, its root, and where Scrapy's settings are."""

from __future__ import annotations

import configparser
import hashlib
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from weft.errors import NOT_SHOWN, Invalid

MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
LARGEST_TEXT = 1_000_000
REQUIREMENTS = "requirements.txt"
IN_SCRAPY_CFG = "[settings] default = <package>.settings in scrapy.cfg"
IN_SETUP = 'entry_points={"scrapy": ["settings = <package>.settings"]} in setup.py'
IN_PYPROJECT = '[project.entry-points.scrapy] settings = "<package>.settings" in pyproject.toml'


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLayout:
    """How the code of an archive is laid out; paths are inside the archive."""

    format: str
    """egg, wheel, sdist or zip."""
    settings: str
    root: str = ""
    requirements: str = ""
    lock: str = ""


def layout_of(folder: Path, kind: str) -> CodeLayout:
    """What was unpacked from an archive of this kind (``zip`` or ``tar``). ``Invalid`` says what is missing in it."""
    if (folder / "EGG-INFO").is_dir():
        settings = _entry_point(folder / "EGG-INFO" / "entry_points.txt")
        return _laid_out(folder, folder, "egg", settings, IN_SETUP)
    if kind == "zip" and (wheel := next(folder.glob("*.dist-info/WHEEL"), None)) is not None:
        return _laid_out(folder, folder, "wheel", _entry_point(wheel.parent / "entry_points.txt"), IN_PYPROJECT)
    top, settings = _source(folder)
    return _laid_out(folder, top, "sdist" if kind == "tar" else "zip", settings, f"{IN_SCRAPY_CFG}, or {IN_PYPROJECT}")


def settings_of(folder: Path) -> str | None:
    """The module of Scrapy's settings that a folder of sources names; None where it names none."""
    if (cfg := folder / "scrapy.cfg").is_file():
        return _parsed(cfg).get("settings", "default", fallback=None)
    if (pyproject := folder / "pyproject.toml").is_file() and (named := _in_pyproject(pyproject)):
        return named
    made = next(folder.glob("*.egg-info/entry_points.txt"), None) or next(
        folder.glob("src/*.egg-info/entry_points.txt"), None
    )
    return None if made is None else _entry_point(made)


def project_of(folder: Path) -> str | None:
    """The name of the project that ``[deploy]`` of scrapy.cfg gives."""
    cfg = folder / "scrapy.cfg"
    return _parsed(cfg).get("deploy", "project", fallback=None) if cfg.is_file() else None


def _source(folder: Path) -> tuple[Path, str | None]:
    """Where the sources are, at the top or one folder down, and the settings that they name."""
    for place in (folder, *_folders(folder)):
        if settings := settings_of(place):
            return place, settings
    return folder, None


def _folders(folder: Path) -> Iterator[Path]:
    return iter(sorted(each for each in folder.iterdir() if each.is_dir()))


def _laid_out(folder: Path, top: Path, form: str, settings: str | None, where: str) -> CodeLayout:
    if not settings:
        raise Invalid(f"the {form}", NOT_SHOWN, f"it must say where Scrapy's settings are: {where}")
    if not MODULE.fullmatch(settings):
        raise Invalid("the settings", settings, "it must be the name of a module, such as shop.settings")
    root = next((each for each in (top, top / "src") if _has(each, settings)), None)
    if root is None:
        raise Invalid("the settings", settings, f"there is no such module in the {form}")
    requirements = next((each for each in (top / REQUIREMENTS, folder / REQUIREMENTS) if each.is_file()), None)
    return CodeLayout(
        format=form,
        settings=settings,
        root=_inside(root, folder),
        requirements="" if requirements is None else _inside(requirements, folder),
        lock="" if requirements is None else _digest(requirements),
    )


def _inside(place: Path, folder: Path) -> str:
    path = place.relative_to(folder).as_posix()
    return "" if path == "." else path


def _has(root: Path, module: str) -> bool:
    place = root.joinpath(*module.split("."))
    return place.with_name(f"{place.name}.py").is_file() or (place / "__init__.py").is_file()


def _entry_point(file: Path) -> str | None:
    if not file.is_file():
        return None
    found = _parsed(file).get("scrapy", "settings", fallback=None)
    return found.partition(":")[0].strip() if found else None


def _in_pyproject(file: Path) -> str | None:
    try:
        found = tomllib.loads(_text(file))["project"]["entry-points"]["scrapy"]["settings"]
    except (KeyError, TypeError):
        return None
    except (ValueError, RecursionError) as problem:
        raise Invalid(file.name, NOT_SHOWN, f"it must be TOML ({str(problem)[:200]})") from problem
    return found if isinstance(found, str) else None


def _parsed(file: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(_text(file))
    except configparser.Error as problem:
        raise Invalid(file.name, NOT_SHOWN, f"it cannot be read ({str(problem).splitlines()[0]})") from problem
    return parser


def _digest(file: Path) -> str:
    _check_size(file)
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _check_size(file: Path) -> None:
    if file.stat().st_size > LARGEST_TEXT:
        raise Invalid(file.name, NOT_SHOWN, f"it may have {LARGEST_TEXT} bytes")


def _text(file: Path) -> str:
    _check_size(file)
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as problem:
        raise Invalid(file.name, NOT_SHOWN, "it must be text in UTF-8") from problem
