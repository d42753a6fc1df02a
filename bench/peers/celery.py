"""Celery, on Redis and on RabbitMQ: the prefork pool, at its defaults, without results."""

from celery import Celery

from bench.marks import mark
from bench.peers.app import QUEUE, URL

app = Celery(broker=URL)
app.conf.task_default_queue = QUEUE


@app.task(ignore_result=True)
def noop() -> None:
    mark()


def submit(tasks: int) -> None:
    for _ in range(tasks):
        noop.delay()
    app.pool.force_close_all()  # a client that merely ends may leave its last messages unread
