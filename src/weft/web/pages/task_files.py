"""Tasks as a file: taken in after a look at what would change, and given out."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import msgspec
from starlette.datastructures import UploadFile
from starlette.responses import Response

from weft.documents.task_files import toml_text, yaml_text
from weft.errors import Invalid
from weft.tasks import taskfile
from weft.web.faults import faults
from weft.web.inside import Refusal
from weft.web.rendering import Onward, Page
from weft.web.uploads import uploaded
from weft.web.visit import Visit

LARGEST = 500_000
"""Characters of a file that a page takes; ``weft tasks apply`` takes larger ones."""
LARGEST_FORM = 8 * LARGEST + 100_000
"""Bytes of the form: a character has four at most, and a file may come beside a text."""
MOST_PARTS = 200_000
"""Values in a file. Some lines of YAML can stand for billions of them."""
FORMATS = ("toml", "yaml", "json")
NO_TOML = "a parameter without a default cannot be said in TOML; take YAML"


async def import_page(visit: Visit) -> Page:
    """A form to paste a file into, or to send one."""
    return _page({"format": "toml"})


async def take(visit: Visit) -> Page | Onward:
    """Tell what a file would change; change it where that was asked for by somebody who has seen just that."""
    async with uploaded(visit, "file", LARGEST_FORM) as file:
        text, ending = await _sent(visit, file)
    typed = {"text": text, "format": ending, "prune": visit.form.get("prune", "")}
    seen = hashlib.sha256(repr(sorted(typed.items())).encode(errors="replace")).hexdigest()
    applies = visit.form.get("act") == "apply" and visit.form.get("seen") == seen
    query = {"dry_run": "false" if applies else "true", "prune": "true" if typed["prune"] else "false"}
    try:
        body = await asyncio.to_thread(read, text, ending)
        told = (await visit.ask("POST", "/v1/tasks/apply", query=query, body=body)).document
    except Invalid as problem:
        return _page(typed, {"text": str(problem)})
    except Refusal as refusal:
        return _page(typed, faults(refusal, "text", also=frozenset({403})))
    if applies:
        return Onward(f"/tasks?said=applied&count={len(told['changes'])}")
    return _page({**typed, "seen": seen}, told=told)


async def _sent(visit: Visit, file: UploadFile | None) -> tuple[str, str]:
    """The text that was pasted or sent, and its format."""
    if file is None:
        ending = visit.form.get("format", "")
        return visit.form.get("text", "").replace("\r\n", "\n"), ending if ending in FORMATS else "toml"
    ending = PurePath(file.filename or "").suffix.lstrip(".").replace("yml", "yaml")
    data = await file.read(4 * LARGEST + 1)
    return data.decode(errors="replace").replace("\r\n", "\n"), ending if ending in FORMATS else "toml"


def read(text: str, ending: str) -> Mapping[str, Any]:
    """What a file says, as the API takes it."""
    if len(text) > LARGEST:
        allowed = f"a page takes {LARGEST} at most; weft tasks apply takes more"
        raise Invalid("the file", f"{len(text)} characters long", allowed)
    if ending == "json":
        try:
            content = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as problem:
            raise Invalid("task file", "the text", f"it is not JSON: {problem}") from problem
    else:
        content = taskfile.content(text, f".{ending}", "the text")
    if not isinstance(content, Mapping) or (not content.get("tasks") and not content.get("projects")):
        raise Invalid("task file", "the text", "it must have tasks ([[tasks]] in TOML) or projects")
    _check_size(content)
    return content


def _check_size(content: Any) -> None:
    """Refuse what is larger than it looks, or holds itself."""
    waiting, seen = [content], 0
    while waiting:
        each = waiting.pop()
        seen += 1
        if seen > MOST_PARTS:
            raise Invalid("task file", "the text", f"it may have {MOST_PARTS} values at most")
        waiting += list(each.values()) if isinstance(each, Mapping) else each if isinstance(each, list) else []


def _page(typed: Mapping[str, str], errors: Mapping[str, str] | None = None, told: Any = None) -> Page:
    shown = {"typed": {"text": "", "prune": "", "seen": "", **typed}, "errors": errors or {}, "told": told}
    document = told or {"errors": errors or {}}
    return Page("tasks/import.html", shown, document, status=422 if errors else 200)


async def export(visit: Visit) -> Response | Page:
    """All tasks, or those of a project, as a file; without a format, a page to choose one."""
    project, ending = visit.query.get("project", "").strip(), visit.query.get("format", "")
    if ending not in FORMATS:
        return Page("tasks/export.html", {"project": project, "formats": FORMATS}, {"formats": FORMATS})
    content = (await visit.ask("GET", "/v1/tasks/export", query={"project": project} if project else {})).document
    text = await asyncio.to_thread(_text, content, ending)
    name = f"{re.sub(r'[^A-Za-z0-9._-]', '', project) or 'tasks'}.{ending}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(text, 200, headers, "application/octet-stream")


def _text(content: Mapping[str, Any], ending: str) -> str:
    if ending == "json":
        return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"
    if ending == "yaml":
        return yaml_text(content)
    text = toml_text(content)
    if text is None:
        raise Invalid("format", "toml", NO_TOML)
    return text


UPLOADS = frozenset({take})

PAGES = {"/tasks/import": {"GET": import_page, "POST": take}, "/tasks/export": {"GET": export}}
