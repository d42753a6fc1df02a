"""Where the value of each setting comes from: default < weft.toml < environment < command line."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

from weft.config import HIDDEN, Config, hidden, shown
from weft.errors import Misconfigured


@dataclass(frozen=True, slots=True)
class Setting:
    """One value of a loaded configuration, and its origin."""

    name: str
    value: Any
    origin: str
    doc: str
    hidden: bool = False

    @property
    def shown(self) -> str:
        return "••••" if self.hidden and self.value else hidden(str(self.value))


@dataclass(frozen=True, slots=True)
class Loaded:
    config: Config
    settings: tuple[Setting, ...]


def load(
    overrides: Mapping[str, Any] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Loaded:
    """Read every source; a name that no setting has, or a value of the wrong type, stops the start."""
    environment = os.environ if environment is None else environment
    values: dict[str, tuple[Any, str]] = {}
    asked = file or environment.get("WEFT_CONFIG")
    values |= _from_file(Path(asked or "weft.toml"), required=bool(asked))
    values |= _from_environment(environment)
    values |= {
        name: (_typed(name, value, f"command line: {name}"), "command line")
        for name, value in (overrides or {}).items()
        if value is not None
    }
    config = Config(**{name: value for name, (value, _) in values.items()})
    settings = (_setting(f, config, values) for f in fields(Config))
    return Loaded(config, tuple(settings))


def _setting(one: Any, config: Config, values: Mapping[str, tuple[Any, str]]) -> Setting:
    value, origin = values.get(one.name, (getattr(config, one.name), "default"))
    effective = {"database": config.database_url, "broker": config.broker_url, "blobs": config.blobs_url}
    value = value or effective.get(one.name, value)
    return Setting(one.name, value, origin, one.metadata["doc"], one.name in HIDDEN)


def _from_file(path: Path, *, required: bool) -> dict[str, tuple[Any, str]]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if required:
            raise Misconfigured(f"there is no configuration file {path}") from None
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as problem:
        raise Misconfigured(f"{path} cannot be read: {' '.join(str(problem).split())}") from problem
    return {name: (_typed(name, value, f"{path}: {name}"), str(path)) for name, value in content.items()}


def _from_environment(environment: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    found: dict[str, tuple[Any, str]] = {}
    for variable, text in sorted(environment.items()):
        if not variable.startswith("WEFT_") or variable in _NO_SETTINGS:
            continue
        name = variable.removeprefix("WEFT_").lower()
        if name.endswith("_file") and name.removesuffix("_file") in _TYPES:
            name, text = name.removesuffix("_file"), _secret_file(variable, text)
            if name in found:
                raise Misconfigured(f"{variable} and {found[name][1]} are both set; set one of them")
        found[name] = (_typed(name, _parsed(name, text), variable), variable)
    return found


def _secret_file(variable: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is not text"
        raise Misconfigured(f"{variable} is {path!r}; the file cannot be read: {why}") from problem


def _parsed(name: str, text: str) -> Any:
    kind = _TYPES.get(name)
    try:
        if kind is bool:
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(
                text.lower(), text
            )
        return kind(text) if kind in (int, float) else text
    except ValueError:
        return text


def _typed(name: str, value: Any, where: str) -> Any:
    kind = _TYPES.get(name)
    if kind is None:
        raise Misconfigured(f"{where} is not a setting of weft; `weft config` lists them")
    if kind is float and type(value) is int and abs(value) < 10**300:
        return float(value)
    if type(value) is not kind:
        wanted = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}[kind]
        said = "of another type" if name in HIDDEN else shown(value)[:120]
        raise Misconfigured(f"{where} is {said}; it must be {wanted}")
    return value


_NO_SETTINGS = frozenset(
    f"WEFT_{name}"
    for name in (
        "CONFIG",
        "CONTEXT",
        "RUN_ID",
        "ATTEMPT",
        "IDEMPOTENCY_KEY",
        "PROJECT",
        "TASK",
        "CORRELATION_ID",
        "METRICS",
    )
)
"""Where the file is, and what a command of a run is told of itself: it may well call weft."""

_TYPES: dict[str, type] = get_type_hints(Config)
