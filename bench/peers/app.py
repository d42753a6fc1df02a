"""What every peer's app is told: where its broker is and which queue is its own.

``python -m bench.peers.app NAME FUNCTION [TASKS]`` calls a function of a peer's app and prints the seconds it took.
"""

import importlib
import os
import sys
import time

URL = os.environ.get("BENCH_URL", "")
QUEUE = os.environ.get("BENCH_QUEUE", "")


def main(peer: str, function: str, *tasks: str) -> None:
    call = getattr(importlib.import_module(f"bench.peers.{peer}"), function)
    started = time.perf_counter()
    call(*map(int, tasks))
    print(time.perf_counter() - started)


if __name__ == "__main__":
    main(*sys.argv[1:])
