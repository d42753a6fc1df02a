"""What of two answers must be alike: the fields of each, without what no two servers have in common.

Times become their form, process ids and generated job ids their kind; lists whose order is that of a directory are
sorted; of a traceback the last line stays; of a log the lines of the spider itself; of a page its title, links, tables
and forms.
"""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from typing import Any

from tests.scrapyd.asking import Answer
from tests.scrapyd.pages import outline
from tests.scrapyd.real import ZONE

HEADERS = (
    "content-type",
    "access-control-allow-origin",
    "access-control-allow-methods",
    "access-control-allow-headers",
    "allow",
    "www-authenticate",
    "location",
    "accept-ranges",
    "content-range",
)
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?(\.\d{6})?")
LATELY = timedelta(minutes=20)
"""How long ago a time of the scenario may be; a zone is further away."""
GENERATED = re.compile(r"\b[0-9a-f]{32}\b")
SPIDER_LINE = re.compile(r"^\S+ \S+ (\[(?:things|waits|only)\] .*)$", re.MULTILINE)

Fields = dict[str, Any]


def differences(scrapyd: Fields, weft: Fields) -> list[str]:
    """The names of the fields that are not alike; of answers of another kind only what makes them so."""
    unlike = sorted(name for name in scrapyd.keys() | weft.keys() if scrapyd.get(name) != weft.get(name))
    return next(([kind] for kind in ("code", "status") if kind in unlike), unlike)


def fields_of(answer: Answer) -> Fields:
    """Everything of the answer that is compared, by the names that the list of differences uses."""
    headers = {name: answer.headers[name] for name in HEADERS if name in answer.headers}
    kind = headers.get("content-type", "").partition(";")[0]
    if kind == "multipart/byteranges":
        headers["content-type"] = kind
    return {"code": answer.status} | headers | body_fields(kind, answer)


def body_fields(kind: str, answer: Answer) -> Fields:
    if not answer.data:
        return {"length": answer.headers.get("content-length")} if kind == "application/json" else {}
    text = answer.data.decode()
    if kind == "application/json":
        return {"end": text[len(text.rstrip()) :]} | json_fields(json.loads(text))
    if "<html" in text:
        return outline(text, plain)
    if "[scrapy." in text:
        return {"log": SPIDER_LINE.findall(text), "start": plain(text).partition(":")[0]}
    return {"text": re.sub(r"--[0-9a-f]{10,}", "--<boundary>", text)}


def json_fields(data: dict[str, Any]) -> Fields:
    found = {name: plain_value(name, value) for name, value in data.items()}
    if "pending" in found and isinstance(found["pending"], list):
        found["pending"] = sorted(found["pending"], key=lambda job: str(job["project"]))
    if "projects" in found:
        found["projects"] = sorted(found["projects"])
    return found


def plain_value(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [plain_value("", each) for each in value]
    if isinstance(value, dict):
        return {key: plain_value(key, each) for key, each in value.items()}
    if name == "pid" and isinstance(value, int):
        return "<pid>"
    if name == "message" and str(value).startswith("RunnerError: "):
        return f"RunnerError: … {str(value).strip().splitlines()[-1]}"
    return plain(value) if isinstance(value, str) else value


def plain(text: str) -> str:
    return GENERATED.sub("<id>", TIME.sub(lately, text))


def lately(found: re.Match[str]) -> str:
    """A time of the scenario, in the zone where both servers are, becomes its form; any other stays."""
    passed = datetime.now(ZONE).replace(tzinfo=None) - datetime.fromisoformat(found[0])
    return re.sub(r"\d", "0", found[0]) if -LATELY < passed < LATELY else found[0]
