"""The kind ``crawl``: a share of a crawl of whole sites, in a process of its own (``python -m weft.crawler``).

The process asks its worker for hosts and tells it what it has found, over a socket in its folder
(``workers/frontier_server.py``); it has neither the database nor any key.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from weft import crawl_spec
from weft.adapters.executors._process import Process
from weft.adapters.executors._spec import Limits
from weft.adapters.executors._spider_spec import bare_environment
from weft.adapters.executors._supervised import Printed, ended, supervise
from weft.errors import Invalid
from weft.ports import Breaker, Ended, Work
from weft.untrusted_files import create

PRINTED_BYTES = 1 << 30


class CrawlExecutor:
    needs_folder = True

    def check(self, spec: Mapping[str, Any]) -> None:
        if not isinstance(spec, Mapping):
            raise Invalid("the spec of crawl", spec, "it must be a map with urls")
        Limits.of(crawl_spec.read(spec).limits)

    async def execute(self, work: Work) -> Ended:
        try:
            spec = crawl_spec.read(work.spec)
            limits = Limits.of(spec.limits)
        except Invalid as refused:
            return Ended(outcome="failed", reason=str(refused))
        try:
            crawl_spec.check_extras(spec.keeping)  # weft may have them where the crawl was asked for, and not here
        except Invalid as missing:
            return Ended(outcome="failed", reason=str(missing), permanent=True)
        printed, order = Printed(work, PRINTED_BYTES), _write_order(work)
        argv = [sys.executable, "-I", "-m", "weft.crawler"]
        try:
            process = Process(argv, cwd=work.folder, env=_environment(work), sink=printed.take)
            met, code = await supervise(process, work, limits, printed)
        finally:
            order.unlink(missing_ok=True)  # it may have secrets, and a process that was stopped early did not take it
        return ended(work.folder, code, met)

    def breakers(self) -> Collection[Breaker]:
        return ()


def _write_order(work: Work) -> Path:
    (work.folder / "tmp").mkdir(mode=0o700, parents=True, exist_ok=True)
    named = {"spec": work.spec, "run_id": work.run_id, "attempt": work.attempt}
    path = work.folder / "order.json"
    with open(create(path), "w", encoding="utf-8") as file:
        json.dump({**named, "project": work.project, "task": work.task}, file)
    return path


def _environment(work: Work) -> dict[str, str]:
    folder = work.folder.absolute()
    named = {"WEFT_RUN_ID": str(work.run_id), "WEFT_ATTEMPT": str(work.attempt), "WEFT_PROJECT": work.project}
    return {**bare_environment(), **named, "HOME": str(folder), "TMPDIR": str(folder / "tmp")}


EXECUTOR = CrawlExecutor
