"""Which weft the commands speak to: the one of this machine, or one elsewhere that was logged in to.

Kept in one file of the user, which nobody else may read: it holds keys.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.cli.options import options_of
from weft.errors import Misconfigured, NotFound

HERE = "here"
"""The name of the weft of this machine."""


@dataclass(frozen=True, slots=True)
class Context:
    """A weft elsewhere, and the key to it."""

    name: str
    url: str
    token: str
    ca_file: str = ""


@dataclass(slots=True)
class Contexts:
    """Every weft that was logged in to, and the one that is spoken to unless told."""

    current: str = HERE
    known: dict[str, Context] = field(default_factory=dict)

    def named(self, name: str) -> Context | None:
        """The context of that name; None for the weft of this machine."""
        if name == HERE:
            return None
        if name not in self.known:
            raise NotFound("context", f"{name}; `weft context list` shows them, `weft login` adds one")
        return self.known[name]


def chosen(context: Any) -> Context | None:
    """The weft elsewhere that this command is meant for; None for the one of this machine.

    One that is named counts first; a place of data that is named means this machine.
    """
    options = options_of(context)
    named = options.context or os.environ.get("WEFT_CONTEXT")
    if named:
        return read().named(named)
    here = options.data_dir or options.config or os.environ.get("WEFT_DATA_DIR") or os.environ.get("WEFT_DATABASE")
    if here:
        return None
    found = read()
    return found.named(found.current)


def place() -> Path:
    root = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(root) / "weft" / "contexts.toml"


def read() -> Contexts:
    path = place()
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        known = {name: Context(name, **each) for name, each in content.get("contexts", {}).items()}
        return Contexts(str(content.get("current", HERE)), known)
    except FileNotFoundError:
        return Contexts()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, TypeError, AttributeError) as problem:
        why = " ".join(str(problem).split())
        raise Misconfigured(f"{path} cannot be read: {why}; mend it, or delete it and log in again") from problem


def write(contexts: Contexts) -> None:
    """Keep the contexts; the file is never there half-written, nor for others to read."""
    path = place()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(_text(contexts))
    new.replace(path)


def _text(contexts: Contexts) -> str:
    lines = [f"current = {_quoted(contexts.current)}"]
    for each in contexts.known.values():
        lines += ["", f"[contexts.{_quoted(each.name)}]", f"url = {_quoted(each.url)}"]
        lines += [f"token = {_quoted(each.token)}", *([f"ca_file = {_quoted(each.ca_file)}"] if each.ca_file else [])]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
