"""A spider's task, read and found to be right, and the order that its process is given."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from weft.adapters.executors._spec import Fields, Limits, is_text, isolation_of, limits_of
from weft.adapters.executors.shell import INHERITED
from weft.errors import Invalid
from weft.ports import ReadyCode, Work
from weft.untrusted_files import create
from weft.user_code import GRACE, grace_of, variables_for

FIELDS = (
    "spider",
    "args",
    "settings",
    "version",
    "dataset",
    "limits",
    "isolation",
    "log_bytes",
    "resumable",
    "frontier",
)
LONGEST_NAME = 100
PRINTED_BYTES = 1 << 30
"""How much a run may print in all before it is ended; what is kept of it is a matter of the task's ``log_bytes``."""


@dataclass(frozen=True, slots=True)
class SpiderSpec:
    """A spec of the kind ``spider``."""

    spider: str
    args: Mapping[str, str]
    settings: Mapping[str, Any]
    limits: Limits
    isolation: str
    must_isolate: bool
    """Whether it is rather not started than with less."""
    printed_bytes: int
    resumable: bool
    """Whether it keeps its place in the crawl, so that it can be paused."""
    frontier: bool
    """Whether it takes its requests from a frontier that other runs share."""
    grace_seconds: float | None
    """How long it may take to close once it is stopped, where its settings say so."""

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> SpiderSpec:
        fields = Fields("spider", spec, FIELDS)
        spider = fields.text("spider")
        if not spider:
            raise fields.refusal("spider", "it must be the name of a spider")
        for name in ("version", "dataset"):
            fields.text(name)
        printed = fields.whole("log_bytes", PRINTED_BYTES, least=1_000, most=1 << 40)
        limits = Limits.of(spec.get("limits") or {})
        return cls(
            spider=spider,
            args=_arguments(fields),
            settings=_settings(fields),
            limits=limits,
            isolation=isolation_of(fields),
            must_isolate="isolation" in fields,
            printed_bytes=printed,
            resumable=fields.flag("resumable", False),
            frontier=_shares_frontier(fields),
            grace_seconds=_grace(fields),
        )


def _arguments(fields: Fields) -> dict[str, str]:
    """Scrapy gives every argument to the spider as a text."""
    given = fields.value("args") or {}
    if not isinstance(given, Mapping) or not all(_is_name(name) for name in given):
        raise fields.refusal("args", "it must be a map whose keys are names of arguments")
    return {name: text_of(value) for name, value in given.items()}


def _settings(fields: Fields) -> dict[str, Any]:
    given = fields.value("settings") or {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) and name for name in given):
        raise fields.refusal("settings", "it must be a map whose keys are names of settings")
    return dict(given)


def _grace(fields: Fields) -> float | None:
    """As the settings of the run say; a parameter in its place is not filled in yet."""
    given = (fields.value("settings") or {}).get(GRACE)
    return None if isinstance(given, str) and "{{" in given else grace_of(given)


def _shares_frontier(fields: Fields) -> bool:
    """Its name, or true for one that is called like the task."""
    given = fields.value("frontier")
    if given is not None and not isinstance(given, bool) and not (is_text(given) and 0 < len(given) <= LONGEST_NAME):
        raise fields.refusal("frontier", f"it must be true, false or a name of up to {LONGEST_NAME} characters")
    return bool(given)


def _is_name(name: object) -> bool:
    """Any name that ``-a`` could give: a spider that takes all arguments takes those that are no Python names too."""
    return isinstance(name, str) and name != "" and name.isprintable() and "=" not in name


def text_of(value: object) -> str:
    """An argument as ``-a`` would give it: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def write_order(work: Work, code: ReadyCode, crawl: SpiderSpec, level: str) -> Path:
    """Leave the order in the run's folder, for its process alone: a command line can be read by everybody."""
    (work.folder / "tmp").mkdir(mode=0o700, parents=True, exist_ok=True)
    params = {name: text_of(value) for name, value in work.params.items()}
    order = {
        "spider": crawl.spider,
        "args": {**crawl.args, **params},
        "settings": crawl.settings,
        "settings_module": code.settings,
        "code": str(code.folder),
        "run_id": work.run_id,
        "attempt": work.attempt,
        "project": work.project,
        "task": work.task,
        "correlation_id": work.correlation_id,
        "traceparent": work.traceparent,
        "env": environment(work, code),
        "limits": {**limits_of(work, crawl.limits), "ports": work.ports},
        "isolation": level,
        "must_isolate": crawl.must_isolate,
        "read": reading(code),
        "write": [str(work.folder.absolute())],
        "pattern_engine": pattern_engine(),
        "jobdir": str(work.folder.absolute() / "jobdir") if crawl.resumable else None,
        "frontier": crawl.frontier,
    }
    path = work.folder / "order.json"
    with open(create(path), "w", encoding="utf-8") as file:
        json.dump(order, file)
    return path


def reading(code: ReadyCode) -> list[str]:
    """What a spider may read beside the system and its Python."""
    return [str(code.folder.absolute()), *filter(None, [pattern_engine()])]


@cache
def pattern_engine() -> str:
    """The folder of RE2, which environments of projects need not have (``agent/patterns.py``)."""
    found = find_spec("re2")
    return "" if found is None or found.origin is None else str(Path(found.origin).resolve().parent)


def bare_environment() -> dict[str, str]:
    """Little of the worker's, nothing of what weft itself is set up with."""
    return {"PATH": os.defpath, **{name: value for name, value in os.environ.items() if INHERITED.fullmatch(name)}}


def environment(work: Work, code: ReadyCode) -> dict[str, str]:
    """All that the spider's process sees."""
    folder, asked = work.folder.absolute(), (work.spec.get("args") or {}).get("_version")
    return {
        **variables_for(work.ports),
        **work.env,
        **bare_environment(),
        "SCRAPY_PROJECT": work.project,
        "SCRAPY_SETTINGS_MODULE": code.settings,
        **({"SCRAPYD_EGG_VERSION": text_of(asked)} if asked is not None else {}),
        "HOME": str(folder),
        "TMPDIR": str(folder / "tmp"),
        "WEFT_RUN_ID": str(work.run_id),
        "WEFT_ATTEMPT": str(work.attempt),
        "WEFT_IDEMPOTENCY_KEY": work.idempotency_key,
        "WEFT_PROJECT": work.project,
        "WEFT_TASK": work.task,
        "WEFT_VERSION": code.version,
        "WEFT_CORRELATION_ID": work.correlation_id,
        "TRACEPARENT": work.traceparent,
    }


def check_arguments(spec: Mapping[str, Any]) -> None:
    """Refuse a spec that is not one of a spider."""
    if not isinstance(spec, Mapping):
        raise Invalid("the spec of spider", spec, f"it must be a map with {', '.join(FIELDS)}")
    SpiderSpec.of(spec)
