"""Huey on SQLite, at its own settings: write-ahead log, and no wait for the disk."""

from huey import SqliteHuey

from bench.marks import mark
from bench.peers.app import URL

app = SqliteHuey(filename=URL)


@app.task()
def noop() -> None:
    mark()


def submit(tasks: int) -> None:
    for _ in range(tasks):
        noop()
