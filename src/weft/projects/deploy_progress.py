"""The progress of a deploy: its current step, set by whoever does it and read by whoever waits for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec

LONGEST_TEXT = 200


class DeployStep(msgspec.Struct, frozen=True):
    """What a deploy is busy with."""

    text: str
    seconds: float
    """Since the deploy began."""


class DeployProgress:
    """Of one deploy; it has no step before there is one that takes long."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._text = ""

    def tell(self, text: str) -> None:
        """Packages have names of their own making, so only what prints is kept."""
        self._text = "".join(each for each in text if each.isprintable())[:LONGEST_TEXT]

    @property
    def step(self) -> DeployStep:
        return DeployStep(self._text, round(time.monotonic() - self._began, 1))


_current: ContextVar[DeployProgress | None] = ContextVar("progress", default=None)


@contextmanager
def reporting_to(progress: DeployProgress) -> Iterator[None]:
    """Let what is told meanwhile, also by tasks that begin here, be told to ``progress``."""
    token = _current.set(progress)
    try:
        yield
    finally:
        _current.reset(token)


def set_step(text: str) -> None:
    """Say what is done now, to whoever follows it."""
    if (progress := _current.get()) is not None:
        progress.tell(text)


def clear_step(text: str) -> None:
    """The same for what takes no time worth telling unless something before it did."""
    if (progress := _current.get()) is not None and progress.step.text:
        progress.tell(text)
