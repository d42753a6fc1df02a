"""What a project offers: its spiders, and the arguments that each of them takes."""

from __future__ import annotations

import inspect
import json
import os
import re
import traceback
import warnings
from pathlib import Path
from typing import Any

from .spool import write_all

PASSED_ON = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
MOST_SETTINGS, LONGEST_NAME, LONGEST_VALUE = 500, 200, 2000
"""What is told of a project's own settings."""
DESCRIBED = re.compile(
    r"^[ \t]*(?::param[ \t]+(?:\S+[ \t]+)?|[-*][ \t]+)?(\w+)[ \t]*(?:\([^)]*\))?:[ \t]+(\S.*)$", re.M
)


def main(code: Path, settings_module: str, walls: str = "") -> int:
    """Print one JSON object on a line of its own: the spiders of the project, or the traceback of what went wrong.

    ``walls`` is JSON: ``{"isolation", "read", "write", "limits"}``; they are raised before any code is imported.
    """
    answer: dict[str, Any]
    line = os.dup(1)
    os.dup2(2, 1)  # what the project prints while it is imported is not the answer
    try:
        if walls:
            shut_in(**json.loads(walls))
        answer = inspected(str(code), settings_module)
    except (Exception, SystemExit) as problem:
        answer = {"error": traceback_in(str(code), problem)}
    write_all(line, b"\n" + json.dumps(answer).encode() + b"\n")
    return 0 if "spiders" in answer else 1


def traceback_in(code: str, problem: BaseException) -> str:
    """The traceback from where it reaches the project's own code, whose files are named as in the project."""
    folder = os.path.join(code, "")
    began = problem.__traceback__
    while began is not None and not began.tb_frame.f_code.co_filename.startswith(folder):
        began = began.tb_next
    if began is None and not isinstance(problem, (ImportError, SyntaxError)):
        began = problem.__traceback__
    return "".join(traceback.format_exception(type(problem), problem, began)).replace(folder, "")


def shut_in(isolation: str, **walls: Any) -> None:
    from .walls import raise_walls

    raise_walls(isolation, **walls)


def inspected(code: str, settings_module: str) -> dict[str, Any]:
    from .project import open_project

    warnings.filterwarnings("error", message="There are several spiders with the same name")
    project = open_project(code, settings_module)
    spiders = [describe(name, project.loader.load(name)) for name in sorted(project.loader.list())]
    return {"spiders": spiders, "settings": own_settings(project.settings)}


def own_settings(settings: Any) -> dict[str, Any]:
    """What the project's own module says; of what is very long, only how long it is."""
    from scrapy.settings import SETTINGS_PRIORITIES

    own = [name for name in settings if settings.getpriority(name) == SETTINGS_PRIORITIES["project"]]
    names = sorted(name for name in own if isinstance(name, str) and len(name) <= LONGEST_NAME)
    return {name: plain(settings.get(name)) for name in names[:MOST_SETTINGS]}


def plain(value: Any) -> Any:
    """A value as JSON has it, with the names of what JSON has not."""
    if hasattr(value, "copy_to_dict"):
        value = value.copy_to_dict()
    try:
        text = json.dumps(value, default=name_of, skipkeys=True)
    except (TypeError, ValueError, RecursionError):
        return name_of(type(value))
    return json.loads(text) if len(text) <= LONGEST_VALUE else f"… ({len(text)} characters)"


def name_of(value: Any) -> Any:
    if isinstance(value, (set, frozenset, tuple)):
        return sorted(map(str, value))
    return getattr(value, "__qualname__", None) or type(value).__qualname__


def describe(name: str, spider: type) -> dict[str, Any]:
    arguments, takes_more = arguments_of(spider)
    docs = described_in(inspect.getdoc(spider.__dict__.get("__init__")) or "")
    docs.update(described_in(own_doc(spider)))
    return {
        "name": name,
        "doc": own_doc(spider),
        "arguments": [{**each, "doc": docs.get(each["name"], "")} for each in arguments],
        "takes_more": takes_more,
    }


def own_doc(spider: type) -> str:
    """The docstring of the class itself: one that it inherits speaks of another."""
    return inspect.cleandoc(spider.__dict__.get("__doc__") or "")


def arguments_of(spider: type) -> tuple[list[dict[str, Any]], bool]:
    """The parameters of the spider's ``__init__``, through the classes that it passes further ones on to.

    The second value says whether Scrapy's own ``**kwargs`` are reached: then any argument becomes an attribute.
    """
    arguments: dict[str, dict[str, Any]] = {}
    for kind in spider.__mro__:
        if "__init__" not in kind.__dict__:
            continue
        parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]  # type: ignore[misc]
        if kind.__module__.partition(".")[0] == "scrapy":
            return list(arguments.values()), True
        for each in parameters:
            if each.kind not in PASSED_ON and each.name != "name":
                arguments.setdefault(each.name, argument(each))
        if not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
            break
    return list(arguments.values()), False


def argument(parameter: inspect.Parameter) -> dict[str, Any]:
    required = parameter.default is inspect.Parameter.empty
    return {
        "name": parameter.name,
        "default": None if required else repr(parameter.default),
        "annotation": "" if parameter.annotation is inspect.Parameter.empty else words_of(parameter.annotation),
    }


def words_of(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def described_in(doc: str) -> dict[str, str]:
    """The texts behind ``name: text`` and ``:param name: text`` lines."""
    return {name: text.strip() for name, text in DESCRIBED.findall(doc)}
