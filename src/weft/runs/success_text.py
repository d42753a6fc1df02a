"""Success conditions as lines of text, as commands and forms take and show them: ``errors <= 0``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from weft.errors import NOT_SHOWN, Invalid
from weft.runs.success import LARGEST_COUNT, RunCondition, SuccessConditions, number

FORMS = "errors <= 0, items >= 10, items >= 50 % of usual, pages >= 1, finish_reason = finished, missing price <= 5 %"
OFF = "any"
COUNTED = ("errors", "warnings", "items", "pages", "requests")
_COUNT = re.compile(r"([a-z]+) ?(<=|>=) ?([0-9][0-9,_]*)", re.ASCII)
_USUAL = re.compile(r"([a-z]+) ?>= ?([0-9.]+) ?% of usual", re.ASCII)
_MISSING = re.compile(r"missing (.+?) ?<= ?([0-9.]+) ?%", re.ASCII)
_OFF = re.compile(rf"(missing .+|[a-z_]+) ?=? {OFF}", re.ASCII)
"""These are our own patterns; what somebody typed is only read by them."""


def parse_conditions(lines: Iterable[str], field: str = "success_if") -> SuccessConditions | None:
    """The conditions that are written there; None where there is none."""
    found: dict[str, Any] = {}
    for line in lines:
        if text := " ".join(line.split()):
            _add(found, text, field)
    if not found:
        return None
    try:
        return msgspec.convert(found, SuccessConditions)
    except msgspec.ValidationError as problem:
        said, _, where = str(problem).replace("`", "").partition(" - at $.")
        raise Invalid(field, NOT_SHOWN, f"{where}: {said}" if where else said) from problem


def _add(found: dict[str, Any], text: str, field: str) -> None:
    name, equals, value = (part.strip() for part in text.partition("="))
    if off := _OFF.fullmatch(text):
        _turn_off(found, off[1].rstrip(), text, field)
    elif equals and name == "finish_reason":
        reasons = [each for part in value.split(",") if (each := part.strip())]
        found["finish_reason"] = reasons[0] if len(reasons) == 1 else reasons
    elif usual := _USUAL.fullmatch(text):
        found.setdefault(_known(usual[1], text, field), {})["min_percent_of_usual"] = _share(usual[2], text, field)
    elif missing := _MISSING.fullmatch(text):
        share = _share(missing[2], text, field)
        found.setdefault("fields", {})[missing[1]] = {"missing_max_percent": share}
    elif count := _COUNT.fullmatch(text):
        bound = "max" if count[2] == "<=" else "min"
        digits = count[3].replace(",", "").replace("_", "")
        if int(digits[:18]) > LARGEST_COUNT:
            raise Invalid(field, text, f"a number is at most {LARGEST_COUNT:,}")
        found.setdefault(_known(count[1], text, field), {})[bound] = int(digits[:18])
    else:
        raise _refusal(text, field)


def _turn_off(found: dict[str, Any], name: str, text: str, field: str) -> None:
    if name.startswith("missing "):
        found.setdefault("fields", {})[name.removeprefix("missing ")] = {}
    elif name == "finish_reason":
        found[name] = []
    else:
        found[_known(name, text, field)] = {}


def _known(name: str, text: str, field: str) -> str:
    if name not in COUNTED:
        raise _refusal(text, field)
    return name


def _share(text: str, whole: str, field: str) -> float:
    try:
        percent = float(text)
    except ValueError:
        raise _refusal(whole, field) from None
    if percent > 100:
        raise Invalid(field, whole, "a percentage is from 0 to 100")
    return percent


def _refusal(text: str, field: str) -> Invalid:
    return Invalid(field, text, f"it must be like {FORMS}; `errors {OFF}` turns one off")


def condition_lines(given: SuccessConditions | Mapping[str, Any] | None) -> list[str]:
    """The lines that ``parse`` reads as these conditions."""
    if given is None:
        return []
    told: dict[str, Any] = msgspec.to_builtins(given)
    lines: list[str] = []
    if (reasons := told.get("finish_reason")) is not None:
        allowed = [reasons] if isinstance(reasons, str) else reasons
        lines.append(f"finish_reason = {', '.join(allowed) or OFF}")
    for name in COUNTED:
        if (bounds := told.get(name)) is not None:
            lines += _lines(name, {bound: limit for bound, limit in bounds.items() if limit is not None})
    for name, bounds in told.get("fields", {}).items():
        share = bounds.get("missing_max_percent")
        lines.append(f"missing {name} {OFF}" if share is None else f"missing {name} <= {share:g} %")
    return lines


def _lines(name: str, bounds: Mapping[str, Any]) -> list[str]:
    forms = {"min": "{} >= {}", "max": "{} <= {}", "min_percent_of_usual": "{} >= {:g} % of usual"}
    return [forms[bound].format(name, limit) for bound, limit in bounds.items()] or [f"{name} {OFF}"]


def found_text(condition: RunCondition) -> str:
    """What was counted, beside what is usual."""
    found = condition.found
    if found is None:
        return ""
    text = f"{number(found)} %" if condition.bound == "missing_max_percent" else number(found)
    return text if condition.usual is None else f"{text} / {number(condition.usual)}"
