"""Tasks as texts: what they do and how they behave in words, and their definition as a file."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import msgspec

from weft.api.definitions import TaskBody, task_of
from weft.documents.task_files import task_content, toml_text, yaml_text
from weft.web.words import N_

OVERLAP = {
    "allow": N_("A tick fires also while an earlier run is not finished."),
    "skip": N_("A tick is skipped while an earlier run is not finished."),
    "queue_one": N_("While a run is not finished, one tick waits behind it; more are skipped."),
    "replace": N_("A tick cancels the run of an earlier one and takes its place."),
}
MISFIRE = {
    "skip": N_("Ticks that come late do not fire."),
    "once": N_("Of ticks that come late, the latest fires."),
    "all": N_("Ticks that come late all fire, at most {count} of them."),
}
ON = {
    "success": N_("if it succeeds"),
    "failure": N_("if it fails"),
    "any": N_("however it ends"),
}
TICKS = {
    "queued": N_("fired"),
    "backfilled": N_("back-filled"),
    "skipped": N_("skipped"),
    "duplicate": N_("duplicate"),
    "missed": N_("missed"),
}
"""What came of a tick."""
WHY = {
    "skipped": N_("An earlier run was not finished."),
    "duplicate": N_("A run with the same target was pending or done."),
    "missed": N_("Weft was not running then, or the tick came too late for the policy."),
}
"""Why nothing came of one."""


def definition(document: Mapping[str, Any]) -> dict[str, Any]:
    """All of a task that is not at its default, from how the API shows it."""
    told = {name: value for name, value in document.items() if name in _DEFINED}
    body = msgspec.convert(told, TaskBody)
    return task_content(task_of(body, document["project"], document["name"]))


def file_text(content: Mapping[str, Any]) -> tuple[str, str]:
    """Tasks as a file that ``weft tasks apply`` reads, and its format: TOML, or YAML where TOML cannot say it."""
    text = toml_text(content)
    return (yaml_text(content), "yaml") if text is None else (text.rstrip("\n") + "\n", "toml")


def deed(task: Mapping[str, Any]) -> str:
    """What a task does, as it would be typed."""
    spec = task["spec"]
    if task["kind"] == "shell":
        return str(spec["script"]) if "script" in spec else shlex.join(map(str, spec.get("argv", ())))
    if task["kind"] == "http":
        return f"{spec.get('method', 'GET')} {spec.get('url', '')}"
    if task["kind"] == "spider":
        args = " ".join(f"-a {shlex.quote(f'{name}={value}')}" for name, value in spec.get("args", {}).items())
        return f"scrapy crawl {spec.get('spider', '')} {args}".rstrip()
    return ""


_DEFINED = frozenset(TaskBody.__struct_fields__)
