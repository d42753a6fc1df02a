"""Run benchmarks by name: ``python -m bench NAME… [OPTIONS]``. The options go to each of them."""

import importlib
import sys
from itertools import takewhile

from bench import against
from bench.peers.peer import PeerFailed
from tests.servers import ServerFailed, ServerMissing

BENCHMARKS = [
    "throughput",
    "submit",
    "dispatch",
    "spread",
    "fleet",
    "schedules",
    "growth",
    "frontier",
    "frontiers",
    "memory",
    "api",
    "outposts",
    "streams",
    "collector",
    "spiders",
    "spider_items",
    "busy",
    "export",
    "scrapyd_api",
    "intake",
    "pages",
    "screens",
    "long_logs",
    "fetch",
    "crawl",
    "crawl_stores",
    "scrapy_frontier",
    "politeness",
]
"""Modules of bench/ with a ``main(arguments) -> exit code``; a new one is added here."""


def main(arguments: list[str]) -> int:
    if arguments in ([], ["--list"], ["--help"]):
        return listing()
    if arguments[0] == "against":
        return against.main(arguments[1:])
    names = list(takewhile(lambda word: not word.startswith("-"), arguments))
    if unknown := [name for name in names if name not in BENCHMARKS]:
        return stop(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    if not names:
        return stop(f"name a benchmark before the options; there are {', '.join(BENCHMARKS)}")
    return max(run(name, arguments[len(names) :]) for name in names)


def listing() -> int:
    for name in BENCHMARKS:
        sentence = (importlib.import_module(f"bench.{name}").__doc__ or "").splitlines()[0]
        print(f"{name:12} {sentence}")
    print(f"\n{(against.__doc__ or '').splitlines()[0]}")
    return 0


def run(name: str, options: list[str]) -> int:
    print(f"== {name}", flush=True)
    try:
        code: int = importlib.import_module(f"bench.{name}").main(options)
    except (PeerFailed, ServerFailed, ServerMissing) as failed:
        print(f"bench: {failed}", file=sys.stderr)
        return 1
    return code


def stop(sentence: str) -> int:
    print(f"bench: {sentence}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
