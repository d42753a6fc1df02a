"""Commands speak to a weft elsewhere as to one that is here: its client has every front-door method that they call."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import get_type_hints

import weft.app
import weft.cli
from tests.cases import for_each
from weft.app import App
from weft.client import Client, connect

COMMANDS = Path(weft.cli.__file__).parent
OF_THIS_MACHINE = (
    "security_checks/",
    "doctor.py",
    "first_admin.py",
    "first_examples.py",
    "noting.py",
    "serve.py",
    "session.py",
)
"""Modules that have the weft of this machine before them, and never a client."""
ROOTS = ("app", "weft")
CLIENT = connect("http://127.0.0.1:1", "weft_1")


def modules() -> list[str]:
    names = [str(file.relative_to(COMMANDS)) for file in sorted(COMMANDS.rglob("*.py"))]
    return [name for name in names if not name.startswith(OF_THIS_MACHINE)]


def words(node: ast.expr) -> list[str]:
    """``["weft", "runs", "find"]`` of ``weft.runs.find``; nothing of what begins with no name."""
    if isinstance(node, ast.Attribute):
        before = words(node.value)
        return [*before, node.attr] if before else []
    return [node.id] if isinstance(node, ast.Name) else []


def uses(source: str) -> Iterator[tuple[list[str], ast.Call | None]]:
    """The front doors and methods that are named, ``["runs", "find"]``, and how each is called."""
    tree = ast.parse(source)
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            named = words(node)
            while named and named[0] == "self":
                del named[0]
            if len(named) > 2 and (named[0].lstrip("_") in ROOTS or hasattr(CLIENT, named[1])):
                yield named[1:], calls.get(id(node))


def problems(source: str) -> list[str]:
    found = []
    for named, call in uses(source):
        here: object = CLIENT
        for word in named:
            here = getattr(here, word, None)
        if here is None:
            found.append(f"the client has no {'.'.join(named)}")
        elif call is not None and callable(here):
            try:
                _binding(here, call)()
            except TypeError as problem:
                found.append(f"{'.'.join(named)} of the client: {problem}")
    return found


def _binding(method: object, call: ast.Call) -> partial[inspect.BoundArguments]:
    signature = inspect.signature(method)  # type: ignore[arg-type]
    named = {word.arg: None for word in call.keywords if word.arg is not None}
    is_whole = len(named) == len(call.keywords) and not any(isinstance(each, ast.Starred) for each in call.args)
    bind = signature.bind if is_whole else signature.bind_partial
    return partial(bind, *(None for each in call.args if not isinstance(each, ast.Starred)), **named)


@for_each("name", modules())
def test_the_client_has_what_a_command_calls(name: str) -> None:
    assert problems((COMMANDS / name).read_text(encoding="utf-8")) == []


def test_what_the_client_lacks_is_found() -> None:
    assert len(list(uses((COMMANDS / "runs.py").read_text(encoding="utf-8")))) > 5
    assert problems("weft.runs.find({}, limit=3), self._weft.crawls.files.all(1), app.secrets.rotate()") == []
    lacks = "weft.runs.tick(), lambda far: far.crawls.counting.here(1), self._app.db.read(1), weft.runs.get(1, now=2)"
    assert sorted(each.partition(":")[0] for each in problems(lacks)) == [
        "runs.get of the client",
        "the client has no crawls.counting",
        "the client has no crawls.counting.here",
        "the client has no db.read",
        "the client has no runs.tick",
    ]


OF_THE_GATEWAY = {"by", "check", "projects", "reason", "trigger"}
"""What a gateway says itself, by the key of the caller and by what is called."""
OF_THIS_WEFT = {"projects.deploy": {"replace"}}
"""What nobody far away may ask for: only an import replaces a version."""


def front_door(name: str) -> type:
    from weft.crawls.crawls import Crawls
    from weft.proxies.proxies import Proxies

    late: dict[str, type] = {"crawls": Crawls, "proxies": Proxies}
    return late.get(name) or get_type_hints(App, vars(weft.app))[name]


def shared_methods() -> Iterator[str]:
    for door, far in vars(CLIENT).items():
        if door != "connection":
            named = {name for name in dir(far) if not name.startswith("_") and callable(getattr(far, name))}
            yield from (f"{door}.{name}" for name in sorted(named) if hasattr(front_door(door), name))


def parameters(method: object) -> dict[str, inspect.Parameter]:
    found = inspect.signature(method).parameters  # type: ignore[arg-type]
    return {name: each for name, each in found.items() if name != "self"}


@for_each("name", list(shared_methods()))
def test_a_method_of_the_client_takes_what_it_takes_here(name: str) -> None:
    door, _, method = name.partition(".")
    here = parameters(getattr(front_door(door), method))
    far = parameters(getattr(type(getattr(CLIENT, door)), method))
    said_there = OF_THE_GATEWAY | OF_THIS_WEFT.get(name, set())
    wanted = {word: each for word, each in here.items() if word in far or word not in said_there}
    assert [*far] == [*wanted], "the same parameters in the same order"
    for word, each in wanted.items():
        assert far[word].kind == each.kind, word
        assert far[word].default == each.default or (word in OF_THE_GATEWAY and far[word].default is not each.empty)


def test_a_difference_between_the_client_and_the_front_door_is_found() -> None:
    assert {"tasks.loose", "tasks.apply", "runs.find", "crawls.all"} <= set(shared_methods())


def test_the_client_has_no_front_door_of_another_name() -> None:
    doors = {name for name in vars(CLIENT) if name != "connection"}
    assert doors <= set(App.__dataclass_fields__) | {
        name for name, each in vars(App).items() if isinstance(each, property)
    }
    assert isinstance(CLIENT, Client)
