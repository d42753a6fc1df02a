"""Which test runs in which process, and when.

Experiments start many processes and mostly wait for them. Two of the test processes begin with experiments while the
others do the rest: both cores stay busy, and no more than two experiments run at once.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

TOGETHER = (
    "tests/adapters/test_spider.py",
    "tests/cli/test_contexts.py",
    "tests/flows/test_behind_nginx.py",
    "tests/flows/test_first_hour.py",
    "tests/scrapyd/",
)
"""Tests of one file here run in one process, so that what they share (Scrapyd, gateways, a zygote) starts once."""

KILLING = ("tests/contracts/test_outages.py", "tests/intake/test_receiver.py", "tests/intake/test_serving.py")
"""Tests that kill a broker: all in one process, so that the servers which only they use start once."""

EXPERIMENTS = "tests/experiments/"
EXPERIMENT_PROCESSES = 2

LONG = (*KILLING, "tests/scrapyd/", "tests/flows/", "tests/web/test_walk.py")
"""What takes long in one piece comes early, so that nobody waits for it at the end."""


def sort_long_first(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: (not item.nodeid.startswith(EXPERIMENTS), not item.nodeid.startswith(LONG)))


class Scheduler(LoadScopeScheduling):  # type: ignore[misc]
    """Hands units of tests to the test processes: one test each, or a file where its tests share a server."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._numbers: dict[str, int] = {}

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        super().add_node_collection(node, collection)
        self._numbers = {nodeid: number for number, nodeid in enumerate(collection)}

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Forget a unit that is done; the parent class would count its tests again after each later one."""
        nodeid = self.registered_collections[node][item_index]
        scope = self._split_scope(nodeid)
        unit = self.assigned_work[node][scope]
        unit[nodeid] = True
        if all(unit.values()):
            del self.assigned_work[node][scope]
        self._reschedule(node)

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(KILLING):
            return "tests that kill a broker"
        return nodeid.partition("::")[0] if nodeid.startswith(TOGETHER) else nodeid

    def _assign_work_unit(self, node: Any) -> None:
        scope = self._next_for(node)
        unit = self.workqueue.pop(scope)
        self.assigned_work.setdefault(node, {})[scope] = unit
        node.send_runtest_some([self._numbers[nodeid] for nodeid, done in unit.items() if not done])

    def _next_for(self, node: Any) -> str:
        """An experiment for the processes that begin with them, another test for the rest; any, where none is left."""
        experiments = int(str(node.gateway.id).removeprefix("gw")) < EXPERIMENT_PROCESSES
        wanted = (scope for scope in self.workqueue if scope.startswith(EXPERIMENTS) == experiments)
        return str(next(wanted, next(iter(self.workqueue))))
