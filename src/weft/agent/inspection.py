"""A look at the source of a project for what will not work here: it is read, not executed.

Found are classes that begin with ``start_requests()``, files that are written where the sandbox allows none, and
variables of the environment that are read. Names and paths that are put together at run time are not followed.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .run_folder import write_all

MOST_FILES, MOST_BYTES, LARGEST_FILE = 2_000, 20_000_000, 1_000_000
MOST_WARNINGS, LONGEST = 200, 200

NOT_RUN = re.compile(r"(tests?|docs?|build|dist|venv|node_modules|__pycache__|\..*|.*\.(egg-info|dist-info))$")
NOT_RUN_FILES = re.compile(r"(setup|conftest|noxfile|test_.*|.*_test)\.py$")
"""Folders and files that no run imports."""
GIVEN = re.compile(
    r"(PATH|HOME|LANG|LC_[A-Z]+|TZ|TMPDIR|TRACEPARENT|SCRAPY_(JOB|PROJECT|SPIDER|SETTINGS_MODULE)|SCRAPYD_EGG_VERSION"
    r"|PYTHON[A-Z]+|WEFT_(RUN_ID|ATTEMPT|IDEMPOTENCY_KEY|PROJECT|TASK|VERSION|CORRELATION_ID))$"
)
"""What every run finds in its environment, or Python itself asks for."""
ENVIRONS = ("os.environ", "environ")
GETTERS = {"os.getenv", "getenv", *(f"{each}.{name}" for each in ENVIRONS for name in ("get", "pop", "setdefault"))}

AWAY = re.compile(r"(/|~|\.\.(/|$)|file:///|[A-Za-z]:[\\/])")
ALLOWED = re.compile(r"(file://)?/dev/(null|stdout|stderr|fd/)")
"""How a path begins that is not in the working directory, and those where a run may write all the same."""
WRITING = re.compile(r"[rbtU]*[wax+]")
OPENERS = {"open", "io.open", "codecs.open", "gzip.open", "bz2.open", "lzma.open"}
MAKERS = {"os.mkdir", "os.makedirs"}
COPIERS = {"shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.copytree", "shutil.move"}
OF_PATHS = {"write_text", "write_bytes", "mkdir", "touch"}
JOINERS = {"os.path.join", "os.path.expanduser", "path.join", "str", "Path", "pathlib.Path"}
PLACES = {"FEED_URI", "FILES_STORE", "IMAGES_STORE", "HTTPCACHE_DIR", "JOBDIR"}
"""Settings that name a place which Scrapy writes to; ``FEEDS`` names them as its keys."""

Found = tuple[str, int, str]
"""What is the matter, in which line, and with what."""


def warnings_in(folder: str) -> list[dict[str, Any]]:
    """What stands out in the source below ``folder``, by file and line."""
    found: list[dict[str, Any]] = []
    for file in sources(folder):
        seen: set[tuple[str, str]] = set()
        for code, line, name in sorted(looked_at(os.path.join(folder, file)), key=lambda each: (each[1], each)):
            if (code, name) not in seen and len(found) < MOST_WARNINGS:
                seen.add((code, name))
                found.append({"code": code, "file": file, "line": line, "name": name[:LONGEST]})
    return found


def sources(folder: str) -> list[str]:
    """The files that a run may import, as far as they are not too many or too large."""
    found: list[str] = []
    left = MOST_BYTES
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if not NOT_RUN.match(each))
        for name in sorted(names):
            path = os.path.join(place, name)
            if not name.endswith(".py") or NOT_RUN_FILES.match(name):
                continue
            size = os.path.getsize(path)
            if size <= min(LARGEST_FILE, left) and len(found) < MOST_FILES:
                left -= size
                found.append(os.path.relpath(path, folder).replace(os.sep, "/"))
    return found


def looked_at(path: str) -> list[Found]:
    """What is found in one file; nothing where it is no Python, which its import says."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
        return list(Source(tree).found())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []


class Source:
    """One module."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._texts: dict[str, str] = {}
        """How the texts begin that names of the module and of its classes stand for."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                text = self._beginning(node.value)
                if text is not None:
                    self._texts.setdefault(node.targets[0].id, text)

    def found(self) -> Iterator[Found]:
        for node in ast.walk(self._tree):
            if isinstance(node, ast.ClassDef):
                yield from self._start_requests(node)
            elif isinstance(node, ast.Call):
                yield from self._read_by_call(node)
                yield from self._written_by_call(node)
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and dotted(node.value) in ENVIRONS:
                yield from self._variable(node, node.slice)
            elif isinstance(node, ast.Compare) and any(dotted(each) in ENVIRONS for each in node.comparators):
                yield from self._variable(node, node.left)
            elif isinstance(node, ast.Assign):
                names = [each.id for each in node.targets if isinstance(each, ast.Name)]
                yield from self._setting(names[0] if names else "", node.value)
            elif isinstance(node, ast.Dict):
                for place, key in enumerate(node.keys):
                    if isinstance(key, ast.Constant) and isinstance(key.value, str):
                        yield from self._setting(key.value, node.values[place])

    def _start_requests(self, node: ast.ClassDef) -> Iterator[Found]:
        methods = {each.name: each for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))}
        if "start_requests" in methods and "start" not in methods:
            yield "start_requests", methods["start_requests"].lineno, node.name

    def _read_by_call(self, node: ast.Call) -> Iterator[Found]:
        if node.args and dotted(node.func) in GETTERS:
            yield from self._variable(node, node.args[0])

    def _variable(self, node: ast.expr, name: ast.AST) -> Iterator[Found]:
        if isinstance(name, ast.Constant) and isinstance(name.value, str) and not GIVEN.match(name.value):
            yield "environment", node.lineno, name.value

    def _written_by_call(self, node: ast.Call) -> Iterator[Found]:
        called = dotted(node.func)
        if node.args and (called in MAKERS or (called in OPENERS and self._writes(node, 1))):
            yield from self._away(node, node.args[0])
        elif called in COPIERS and len(node.args) > 1:
            yield from self._away(node, node.args[1])
        elif isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name in OF_PATHS or (name == "open" and called not in OPENERS and self._writes(node, 0)):
                yield from self._away(node, node.func.value)

    def _writes(self, node: ast.Call, place: int) -> bool:
        """Whether the mode of an open file, which is the argument of that place, says that it is written."""
        named = [each.value for each in node.keywords if each.arg == "mode"]
        mode = named[0] if named else node.args[place] if len(node.args) > place else None
        return isinstance(mode, ast.Constant) and isinstance(mode.value, str) and bool(WRITING.match(mode.value))

    def _setting(self, name: str, value: ast.expr) -> Iterator[Found]:
        if name in PLACES:
            yield from self._away(value, value)
        elif name == "FEEDS" and isinstance(value, ast.Dict):
            for key in value.keys:
                if key is not None:
                    yield from self._away(key, key)

    def _away(self, node: ast.expr, path: ast.expr) -> Iterator[Found]:
        text = self._beginning(path)
        if text is not None and AWAY.match(text) and not ALLOWED.match(text):
            yield "outside_folder", node.lineno, text

    def _beginning(self, node: ast.expr) -> str | None:
        """How a text or a path begins, as far as the source says it."""
        for _ in range(50):
            if isinstance(node, ast.Constant):
                return node.value if isinstance(node.value, str) else None
            if isinstance(node, ast.Name):
                return self._texts.get(node.id)
            if isinstance(node, ast.Attribute):
                return self._texts.get(node.attr) if dotted(node.value) in ("self", "cls") else None
            if isinstance(node, ast.JoinedStr) and node.values:
                first = node.values[0]
                node = first.value if isinstance(first, ast.FormattedValue) else first
            elif isinstance(node, ast.BinOp):
                node = node.left
            elif isinstance(node, ast.Call) and node.args and dotted(node.func) in JOINERS:
                node = node.args[0]
            else:
                return None
        return None


def dotted(node: ast.expr) -> str:
    """A name with its dots, such as ``os.environ``; empty for what is none."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else ""


PASSED_ON = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
MOST_SETTINGS, LONGEST_NAME, LONGEST_VALUE = 500, 200, 2000
"""What is told of a project's own settings."""
DESCRIBED = re.compile(
    r"^[ \t]*(?::param[ \t]+(?:\S+[ \t]+)?|[-*][ \t]+)?(\w+)[ \t]*(?:\([^)]*\))?:[ \t]+(\S.*)$", re.M
)


def main(code: Path, settings_module: str) -> int:
    """Print one JSON object on a line of its own: the spiders of the project, or the traceback of what went wrong."""
    answer: dict[str, Any]
    line = os.dup(1)
    os.dup2(2, 1)  # what the project prints while it is imported is not the answer
    found = warnings_in(str(code))
    try:
        answer = inspected(str(code), settings_module)
    except (Exception, SystemExit) as problem:
        answer = {"error": traceback_in(str(code), problem)}
    answer["warnings"] = found
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


def inspected(code: str, settings_module: str) -> dict[str, Any]:
    from .project import open_project, warm_of

    warnings.filterwarnings("error", message="There are several spiders with the same name")
    project = open_project(code, settings_module)
    warm_of(project.settings)  # what no run could understand is told when it is deployed
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
