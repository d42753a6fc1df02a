"""What a side is put through: calls, and waiting for what they set going."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from tests.scrapyd.asking import Answer, Call, Side

PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Until:
    """Wait until a job of project ``shop`` is in this state."""

    job: str
    state: str | None


@dataclass(frozen=True, slots=True)
class Ready:
    """Wait until this job's spider has come to the gate, and until its files are listed."""

    job: str


@dataclass(frozen=True, slots=True)
class Idle:
    """Wait until nothing is pending and nothing runs."""


Step = Call | Until | Ready | Idle


def get(name: str, endpoint: str, **parameters: str) -> Call:
    return Call(name=name, path=f"/{endpoint}.json", query=urlencode(parameters, quote_via=quote))


def post(name: str, endpoint: str, *more: tuple[str, str], **form: str) -> Call:
    """``more`` are further pairs, for names that come twice or begin with an underscore."""
    return Call(name=name, method="POST", path=f"/{endpoint}.json", form=(*form.items(), *more))


def deploy(name: str, project: str, version: str, egg: bytes) -> Call:
    form = (("project", project), ("version", version))
    return Call(name=name, method="POST", path="/addversion.json", form=form, egg=egg)


def page(name: str, path: str, method: str = "GET", **headers: str) -> Call:
    return Call(name=name, method=method, path=path, headers={key.replace("_", "-"): headers[key] for key in headers})


def play(side: Side, steps: Sequence[Step], answers: dict[str, Answer]) -> None:
    """Take the steps in their order; what each call was answered comes into ``answers``, by its name."""
    for step in steps:
        if isinstance(step, Call):
            answers[step.name] = side.ask(step)
        elif isinstance(step, Ready):
            wait_until_ready(side, step)
        elif isinstance(step, Idle):
            wait_until_idle(side)
        else:
            wait_for_state(side, step)


def wait_for_state(side: Side, until: Until) -> None:
    status = get("", "status", project="shop", job=until.job)
    eventually(lambda: json.loads(side.ask(status).data)["currstate"] == until.state, f"{side.name}: {until}")


def wait_until_ready(side: Side, ready: Ready) -> None:
    jobs = get("", "listjobs", project="shop")

    def listed() -> bool:
        running = json.loads(side.ask(jobs).data)["running"]
        return bool(running) and all(each["log_url"] and each["items_url"] for each in running)

    def told() -> bool:
        return b"[waits] INFO: waiting" in side.ask(page("", f"/logs/shop/waits/{ready.job}.log")).data

    if not side.gate.wait_for(ready.job, PATIENCE_SECONDS):
        raise AssertionError(f"did not come within {PATIENCE_SECONDS:.0f} s: {side.name}: {ready}")
    eventually(listed, f"{side.name}: {ready}, and listed with its files")
    eventually(told, f"{side.name}: {ready}, and to be read in its log")


def wait_until_idle(side: Side) -> None:
    def idle() -> bool:
        counts = json.loads(side.ask(get("", "daemonstatus")).data)
        return bool(counts["pending"] + counts["running"] == 0)

    eventually(idle, f"{side.name}: idle")


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"did not come within {PATIENCE_SECONDS:.0f} s: {what}")
        time.sleep(LOOK_SECONDS)
