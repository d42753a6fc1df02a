"""The progress of a deploy: its stages, set by whoever does them and read by whoever waits for it.

A step is a code with values, so that pages can say it in the language of their reader.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

import msgspec

LONGEST_TEXT = 200

STEPS = {
    "received": ("received", "the archive has arrived"),
    "checking": ("checking", "unpacking the archive"),
    "environment": ("installing", "making an environment for its requirements"),
    "collecting": ("installing", "collecting {package} (package {number})"),
    "downloading": ("installing", "downloading {file} {size}"),
    "building": ("installing", "building {package}"),
    "packages": ("installing", "installing {count} packages"),
    "installed": ("installing", "looking at what was installed"),
    "importing": ("importing", "importing the code"),
    "keeping": ("keeping", "keeping the archive"),
}
"""Of each step: the stage that it belongs to, and what it says."""


DeployState = Literal["unknown", "running", "deployed", "failed"]


class DeployStep(msgspec.Struct, frozen=True):
    """What a deploy is busy with."""

    text: str
    seconds: float
    """Since the deploy began."""


class DeployStage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a deploy, which ends with the next one or with the deploy."""

    stage: str
    step: str
    """What was done last in it."""
    values: dict[str, str]
    seconds: float
    """How long it took, or has taken so far."""

    @property
    def text(self) -> str:
        return STEPS[self.step][1].format(**self.values).rstrip()


class DeployProgress:
    """Of one deploy."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._ended: float | None = None
        self._stages: list[tuple[float, str, dict[str, str]]] = []
        """When each began, and its last step."""
        self._takes_long = False
        self.version, self.problem, self.traceback = "", "", ""
        """What has become of it."""
        self.tell("received", takes_long=False)

    def tell(self, step: str, values: Mapping[str, object] | None = None, *, takes_long: bool = True) -> None:
        """Packages have names of their own making, so only what prints is kept."""
        self._takes_long = self._takes_long or takes_long
        kept = {name: _printable(str(value)) for name, value in (values or {}).items()}
        began = time.monotonic()
        if self._stages and STEPS[self._stages[-1][1]][0] == STEPS[step][0]:
            began = self._stages.pop()[0]
        self._stages.append((began, step, kept))

    def end(self, *, version: str = "", problem: str = "", traceback: str = "") -> None:
        self._ended = time.monotonic()
        self.version, self.problem, self.traceback = version, problem, traceback

    @property
    def state(self) -> DeployState:
        if self._ended is None:
            return "running"
        return "failed" if self.problem else "deployed"

    @property
    def ended_at(self) -> float | None:
        """By the monotonic clock."""
        return self._ended

    @property
    def seconds(self) -> float:
        return round((self._ended or time.monotonic()) - self._began, 1)

    @property
    def step(self) -> DeployStep:
        """The current one; empty before there is one that takes long, and once it has ended."""
        is_told = self._takes_long and self._ended is None
        return DeployStep(self.stages[-1].text[:LONGEST_TEXT] if is_told else "", self.seconds)

    @property
    def stages(self) -> list[DeployStage]:
        ends = [*(began for began, _, _ in self._stages[1:]), self._ended or time.monotonic()]
        return [
            DeployStage(stage=STEPS[step][0], step=step, values=values, seconds=round(end - began, 1))
            for (began, step, values), end in zip(self._stages, ends, strict=True)
        ]


def _printable(text: str) -> str:
    return "".join(each for each in text if each.isprintable())[:LONGEST_TEXT]


_current: ContextVar[DeployProgress | None] = ContextVar("progress", default=None)


@contextmanager
def reporting_to(progress: DeployProgress) -> Iterator[None]:
    """Let what is told meanwhile, also by tasks that begin here, be told to ``progress``."""
    token = _current.set(progress)
    try:
        yield
    finally:
        _current.reset(token)


def set_step(step: str, **values: object) -> None:
    """Say what is done now, to whoever follows it."""
    if (progress := _current.get()) is not None:
        progress.tell(step, values)


def clear_step(step: str) -> None:
    """The same for what takes no time worth telling unless something before it did."""
    if (progress := _current.get()) is not None:
        progress.tell(step, takes_long=False)
