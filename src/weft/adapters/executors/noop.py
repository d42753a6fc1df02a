"""The kind ``noop``: does nothing, in the worker's own process. For benchmarks and simulations."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from weft.adapters.executors._spec import Fields
from weft.ports import Breaker, Ended, Work

SUCCEEDED = Ended(outcome="succeeded")
LONGEST = 86_400.0


class NoopExecutor:
    """Succeeds at once; ``sleep_seconds`` makes it wait first, ``fail`` makes it fail with that reason."""

    needs_folder = False

    def check(self, spec: Mapping[str, Any]) -> None:
        fields = Fields("noop", spec, ("sleep_seconds", "fail"))
        fields.number("sleep_seconds", 0.0, least=0.0, most=LONGEST)
        fields.text("fail")

    async def execute(self, work: Work) -> Ended:
        if pause := work.spec.get("sleep_seconds"):
            await asyncio.sleep(pause)
        if reason := work.spec.get("fail"):
            return Ended(outcome="failed", reason=reason)
        return SUCCEEDED

    def breakers(self) -> Collection[Breaker]:
        return ()


EXECUTOR = NoopExecutor
