"""Run experiments by name: ``python -m experiments r01 [--full] [--red]``; ``--list`` tells which there are.

Each is a module with ``async def experiment(*, full: bool, red: bool) -> Report``: ``experiments/rNN.py`` for promise
NN, or one of those ``WITHOUT_NUMBER``. The reduced form takes about a minute; ``--full`` is the size of the promise.
With ``--red`` a protection is switched off: the verdict must then be FAIL.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import pkgutil
import re
import signal
import sys
from collections.abc import Sequence

import experiments
from experiments.report import Report

WITHOUT_NUMBER = ("intake", "link")
"""Experiments that show several promises at once."""


def names() -> list[str]:
    found = (module.name for module in pkgutil.iter_modules(experiments.__path__))
    return sorted(name for name in found if re.fullmatch(r"r\d\d", name) or name in WITHOUT_NUMBER)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    chosen = names() if options.names == ["all"] else options.names
    if options.list or not chosen:
        return listing()
    if unknown := [name for name in chosen if name not in names()]:
        print(f"there is no experiment {', '.join(unknown)}; there are {', '.join(names())}", file=sys.stderr)
        return 2
    reports = [run(name, full=options.full, red=options.red) for name in chosen]
    return 0 if all(report.passed for report in reports) else 1


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="experiments", description=__doc__)
    parser.add_argument("names", nargs="*", help="r01, link and so on, or all")
    parser.add_argument("--full", action="store_true", help="the size of the promise instead of the reduced form")
    parser.add_argument("--red", action="store_true", help="with one protection switched off; the verdict must be FAIL")
    parser.add_argument("--list", action="store_true", help="tell which experiments there are")
    return parser.parse_args(arguments)


def listing() -> int:
    for name in names():
        sentence = (importlib.import_module(f"experiments.{name}").__doc__ or "").splitlines()[0]
        print(f"{name}  {sentence}")
    return 0


def run(name: str, *, full: bool, red: bool) -> Report:
    module = importlib.import_module(f"experiments.{name}")
    report: Report = asyncio.run(module.experiment(full=full, red=red))
    print(report, flush=True)
    return report


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, interrupt)  # so that every cluster and server is closed on the way out
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
