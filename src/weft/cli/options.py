"""What every command may be told, before or after its name: where weft is, whose project, and who reads the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.core import TyperCommand, TyperGroup, TyperOption

from weft.errors import Invalid

WORDS = {
    "--data-dir": "The directory for everything that no URL puts elsewhere.",
    "--config": "A configuration file instead of weft.toml.",
    "--project": "The default project of names without one; lists show only this project.",
    "--context": "The server to use, by its name in `weft context list`.",
    "--json": "Print one JSON document instead of a table.",
}


@dataclass(slots=True)
class SharedOptions:
    """The answers to the options above, wherever on the line they stood."""

    data_dir: str | None = None
    config: Path | None = None
    project: str | None = None
    context: str | None = None
    json: bool = False


def options_of(context: Any) -> SharedOptions:
    found = context.find_object(SharedOptions)
    return found if isinstance(found, SharedOptions) else SharedOptions()


class WeftCommand(TyperCommand):
    """A command that takes the options of all commands too."""

    def __init__(self, *names: Any, params: list[Any] | None = None, **details: Any) -> None:
        super().__init__(*names, params=[*(params or []), *shared()], **details)


class WeftGroup(TyperGroup):
    """A noun whose unknown verbs are refused with those that there are."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            raise Invalid(
                f"a command of {ctx.command_path}", args[0], f"it must be {_alternatives(self.list_commands(ctx))}"
            )
        return super().resolve_command(ctx, args)


class WeftRoot(WeftGroup):
    """The command ``weft`` itself, which takes the options of all commands before the noun."""

    def __init__(self, *, params: list[Any] | None = None, **details: Any) -> None:
        super().__init__(params=[*(params or []), *shared()], **details)


def whole(what: str, low: int, high: int) -> Callable[[Any], int]:
    """Reads a whole number from ``low`` to ``high``."""

    def read(text: Any) -> int:
        digits = str(text).strip()
        if not digits.removeprefix("-").isdecimal() or len(digits) > 20 or not low <= int(digits) <= high:
            raise Invalid(what, text, f"it must be a whole number from {low} to {high}")
        return int(digits)

    return read


def number(what: str, low: float, high: float) -> Callable[[Any], float]:
    """Reads a number from ``low`` to ``high``."""

    def read(text: Any) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not low <= value <= high:
            raise Invalid(what, text, f"it must be a number from {low:g} to {high:g}")
        return value

    return read


def words(what: str, longest: int) -> Callable[[Any], str]:
    """Reads a text that can be printed on a line, of ``longest`` characters at most."""

    def read(text: Any) -> str:
        if not 0 < len(text) <= longest or not str(text).isprintable():
            raise Invalid(what, text, f"it must be a text of 1 to {longest} characters that print")
        return str(text)

    return read


def shared() -> list[TyperOption]:
    """The options of all commands, as new objects for one of them."""
    return [
        TyperOption(param_decls=["--data-dir"], type=str, metavar="DIR", **_shared_option("--data-dir")),
        TyperOption(param_decls=["--config"], type=str, metavar="FILE", **_shared_option("--config")),
        TyperOption(param_decls=["--project"], type=str, metavar="NAME", **_shared_option("--project")),
        TyperOption(param_decls=["--context"], type=str, metavar="NAME", **_shared_option("--context")),
        TyperOption(param_decls=["--json"], is_flag=True, **_shared_option("--json")),
    ]


def _shared_option(name: str) -> dict[str, Any]:
    return {"help": WORDS[name], "expose_value": False, "callback": _remember_option}


def _remember_option(context: Any, option: Any, value: Any) -> Any:
    """Remember the option on the context, which the contexts of sub-commands share."""
    if context.obj is None:
        context.obj = SharedOptions()
    if value and isinstance(context.obj, SharedOptions):
        setattr(context.obj, option.name, Path(value) if option.name == "config" else value)
    return value


def _alternatives(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
