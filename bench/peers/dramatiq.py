"""Dramatiq on RabbitMQ, with its default middleware and eight threads a process."""

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from bench.marks import mark
from bench.peers.app import QUEUE, URL

broker = RabbitmqBroker(url=URL)
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name=QUEUE)
def noop() -> None:
    mark()


def submit(tasks: int) -> None:
    for _ in range(tasks):
        noop.send()
    broker.close()  # a client that merely ends may leave its last messages unread
