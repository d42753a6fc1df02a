"""Starts a module of weft in whose runs spiders have the weight of weft's own processes, as they once had.

    python -m bench.equals off weft up --no-examples
    python -m bench.equals on weft up --no-examples

With ``off`` a run is a session of its own and nothing more; with ``on`` it yields to weft as it does in the product,
which shows that this way of starting changes nothing. The processes that `weft up` starts are started in the same way.
"""

import runpy
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

from weft.adapters.executors import _process_groups
from weft.cli import up
from weft.workers.supervisor import SupervisedProcess

OFF, ON = "off", "on"


def main(arguments: Sequence[str]) -> None:
    mode, module, *rest = arguments
    if mode == OFF:
        _process_groups.lower_soon = leave  # type: ignore[assignment]
        _process_groups.lower = leave
    up.roles = passing_on(mode, up.roles)
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def leave(pid: int) -> bool:
    """A process keeps its weight; it is not asked for again."""
    return True


def passing_on(mode: str, roles: Callable[..., list[SupervisedProcess]]) -> Callable[..., list[SupervisedProcess]]:
    """The same roles, each started through this module."""

    def passed_on(*arguments: object, **options: object) -> list[SupervisedProcess]:
        return [replace(each, command=through(mode, each.command)) for each in roles(*arguments, **options)]

    return passed_on


def through(mode: str, command: Sequence[str]) -> list[str]:
    """``python -m weft …`` as ``python -m bench.equals MODE weft …``."""
    python, dash, module, *rest = command
    return [python, dash, "bench.equals", mode, module, *rest]


if __name__ == "__main__":
    main(sys.argv[1:])
