"""The form of a spider: a field for each argument of its signature, and what was typed there as a run to be queued."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from weft.web.words import N_

PREFIX = "arg."
"""What begins the names of fields that are arguments."""
TYPES = {
    "int": "number",
    "float": "number",
    "date": "date",
    "datetime": "datetime-local",
    "url": "url",
    "email": "email",
}
OPTIONAL = re.compile(r"^Optional\[(.*)\]$|^(.*?)\s*\|\s*None$|^None\s*\|\s*(.*)$", re.DOTALL)
LITERAL = re.compile(r"^(?:typing\.)?Literal\[(.*)\]$", re.DOTALL)
LONGEST_DEFAULT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One argument, as a form asks for it."""

    name: str
    doc: str
    type: str
    """Of an input: text, number, date, …, or choice."""
    choices: Sequence[str]
    default: str
    """Which it has where nothing is given."""
    required: bool
    annotation: str
    step: str
    """How exact a number is: 1, or any."""

    @property
    def id(self) -> str:
        return PREFIX + self.name


def fields_of(spider: Mapping[str, Any]) -> list[Field]:
    return [field_of(each) for each in spider["arguments"]]


def field_of(argument: Mapping[str, Any]) -> Field:
    kind, default = _bare(argument["annotation"]), argument["default"]
    choices = _choices(kind)
    if not choices and kind == "bool":
        choices = ["true", "false"]
    return Field(
        name=argument["name"],
        doc=argument["doc"],
        type="choice" if choices else TYPES.get(kind.rpartition(".")[2], "text"),
        choices=choices,
        default="" if default is None else _plain(default),
        required=default is None,
        annotation=argument["annotation"],
        step="1" if kind == "int" else "any",
    )


def told_of(spider: Mapping[str, Any]) -> str:
    """The docstring of a spider without the lines that tell of its arguments: these stand beside their fields."""
    names = "|".join(re.escape(each["name"]) for each in spider["arguments"])
    if not names:
        return str(spider["doc"])
    told = re.compile(
        rf"^[ \t]*(?::param[ \t]+(?:\S+[ \t]+)?|[-*][ \t]+)?(?:{names})[ \t]*(?:\([^)]*\))?:[ \t]+\S.*$", re.M
    )
    return re.sub(r"\n{3,}", "\n\n", told.sub("", spider["doc"])).strip()


def known_values(fields: Sequence[Field], earlier: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """What each argument was given before, newest first, where its field can offer that."""
    known = {
        field.id: list(dict.fromkeys(_text(each["args"][field.name]) for each in earlier if field.name in each["args"]))
        for field in fields
        if field.type != "choice"
    }
    return {name: values for name, values in known.items() if values}


def typed_of(fields: Sequence[Field], spec: Mapping[str, Any]) -> dict[str, str]:
    """What a run was given, as it stands in the fields of the form."""
    args = {name: _text(value) for name, value in (spec.get("args") or {}).items()}
    known = {field.name for field in fields}
    typed = {PREFIX + name: value for name, value in args.items() if name in known}
    typed["more"] = "\n".join(f"{name}={value}" for name, value in args.items() if name not in known)
    settings = spec.get("settings") or {}
    typed["settings"] = "\n".join(f"{name}={_text(value)}" for name, value in settings.items())
    return typed


def body_of(
    project: str, spider: str, fields: Sequence[Field], form: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The run that a form asks for, as the API takes it; and what is wrong, by field."""
    errors: dict[str, str] = {}
    args = {field.name: form[field.id] for field in fields if form.get(field.id, "").strip()}
    errors |= {
        field.id: N_("The spider cannot do without this.")
        for field in fields
        if field.required and field.name not in args
    }
    errors |= {field.id: wrong for field in fields if (wrong := _wrong(field, args.get(field.name)))}
    spec: dict[str, Any] = {"spider": spider}
    args |= _pairs(form, "more", errors)
    spec |= {"args": args} if args else {}
    settings = _pairs(form, "settings", errors)
    spec |= {"settings": settings} if settings else {}
    spec |= {"version": version} if (version := form.get("version", "")) else {}
    spec |= {"resumable": True} if form.get("resumable") else {}
    body: dict[str, Any] = {"project": project, "kind": "spider", "name": spider, "spec": spec}
    body |= _number(form, "priority", int, errors) | _number(form, "timeout_seconds", float, errors)
    tags = [each for each in re.split(r"[\s,]+", form.get("tags", "")) if each]
    return body | ({"tags": tags} if tags else {}), errors


def _pairs(form: Mapping[str, str], name: str, errors: dict[str, str]) -> dict[str, str]:
    lines = [line.partition("=") for line in form.get(name, "").split("\n") if line.strip()]
    if not all(equals and key.strip() for key, equals, _ in lines):
        errors[name] = N_("Each line must be a name, '=' and a value.")
        return {}
    return {key.strip(): value.strip() for key, _, value in lines}


def _number(form: Mapping[str, str], name: str, kind: type, errors: dict[str, str]) -> dict[str, Any]:
    text = form.get(name, "").strip()
    if not text:
        return {}
    try:
        value = kind(text)
    except ValueError:
        errors[name] = N_("This must be a number.") if kind is float else N_("This must be a whole number.")
        return {}
    return {name: value} if value else {}


def _wrong(field: Field, value: str | None) -> str:
    if value is None or field.type != "number":
        return ""
    try:
        (int if field.step == "1" else float)(value)
    except ValueError:
        return N_("This must be a whole number.") if field.step == "1" else N_("This must be a number.")
    return ""


def _bare(annotation: str) -> str:
    """An annotation without what says that there may be nothing."""
    text = annotation.strip().strip("'\"")
    found = OPTIONAL.match(text)
    return next((each.strip() for each in found.groups() if each is not None), text) if found else text


def _choices(kind: str) -> list[str]:
    found = LITERAL.match(kind)
    if found is None:
        return []
    try:
        values = ast.literal_eval(f"[{found[1]}]")
    except (ValueError, SyntaxError):
        return []
    return [_text(each) for each in values]


def _plain(default: str) -> str:
    """A default as somebody would type it: without the quotes that it has in the code."""
    try:
        value = ast.literal_eval(default)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return default[:LONGEST_DEFAULT]
    return "" if value is None else value[:LONGEST_DEFAULT] if isinstance(value, str) else default[:LONGEST_DEFAULT]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
