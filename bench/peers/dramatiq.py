"""Dramatiq on RabbitMQ, with its default middleware and eight threads a process."""

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from bench.marks import mark
from bench.peers.app import QUEUE, URL

dramatiq.set_broker(RabbitmqBroker(url=URL))


@dramatiq.actor(queue_name=QUEUE)
def noop() -> None:
    mark()


def submit(tasks: int) -> None:
    for _ in range(tasks):
        noop.send()
