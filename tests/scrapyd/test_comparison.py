"""Every call goes to Scrapyd 1.6.0 and to weft; what is not alike is listed in docs/reference/scrapyd.md."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tests.scrapyd.asking import Answer, Side
from tests.scrapyd.calls import CALLS, CHANGING_NOTHING, STEPS
from tests.scrapyd.comparing import Fields, differences, fields_of
from tests.scrapyd.environments import SCRAPYD
from tests.scrapyd.gate import Gate
from tests.scrapyd.listed import listed_differences, rows_without_calls
from tests.scrapyd.real import ZONE_NAME, scrapyd, weft
from tests.scrapyd.steps import Step, play
from tests.servers.server import Server

AT_LEAST = 200
"""The issue asks for eighty calls; fewer than this means that some were lost."""

BESIDE = [call for call in CHANGING_NOTHING if call.path != "/"]
"""What weft's own port answers as well: the page at ``/`` is weft's there."""

pytestmark = pytest.mark.timeout(300)
"""All calls are one scenario, in which Scrapyd starts two dozen processes one after the other."""

Played = dict[str, Fields]
Found = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class Compared:
    """What was answered to each call, by its name."""

    scrapyd: Played
    weft: Played
    beside: Played
    """By weft on its own port."""


def played(server: Server, name: str, port: int, steps: Sequence[Step]) -> Played:
    answers: dict[str, Answer] = {}
    with Gate() as gate:
        try:
            play(Side(name, port, gate), steps, answers)
        except AssertionError as failed:
            raise AssertionError(f"{failed}; its last words:\n{server.output()[-2000:]}") from failed
    return {call: fields_of(answer) for call, answer in answers.items()}


def played_on_scrapyd() -> Played:
    with scrapyd(ZONE_NAME) as server:
        return played(server, "scrapyd", server.port, STEPS)


def played_on_weft() -> tuple[Played, Played]:
    with weft() as server:
        beside = played(server, "weft's own port", int(server.settings["port"]), BESIDE)
        return played(server, "weft", server.port, STEPS), beside


def played_on_both() -> Compared:
    """Both sides at the same time, each in order. What cannot be installed skips on a laptop, and fails in CI."""
    try:
        SCRAPYD.install()
    except subprocess.CalledProcessError as failed:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"Scrapyd could not be installed: {failed}")
    with ThreadPoolExecutor(2) as threads:
        real, ours = threads.submit(played_on_scrapyd), threads.submit(played_on_weft)
        return Compared(real.result(), *ours.result())


def unlisted(compared: Compared, found: Found) -> dict[str, object]:
    """What differs and is not listed, with the answers of Scrapyd and of weft."""
    listed = listed_differences()
    return {
        f"{name} {field}": (compared.scrapyd[name].get(field), compared.weft[name].get(field))
        for name, fields in found.items()
        for field in fields
        if field not in listed.get(name, ())
    }


def no_differences(found: Found) -> Found:
    """What is listed and does not differ."""
    return {name: fields for name, fields in listed_differences().items() if found[name] != fields}


def differing_beside(compared: Compared) -> Found:
    """What weft's own port answers in another way than the port where everything is Scrapyd's."""
    found = {call.name: differences(compared.weft[call.name], compared.beside[call.name]) for call in BESIDE}
    return {name: fields for name, fields in found.items() if fields}


def test_weft_answers_as_scrapyd_does_but_for_what_the_docs_list() -> None:
    compared = played_on_both()
    assert list(compared.scrapyd) == list(compared.weft) == [call.name for call in CALLS]
    found = {call.name: differences(compared.scrapyd[call.name], compared.weft[call.name]) for call in CALLS}
    assert unlisted(compared, found) == {}
    assert no_differences(found) == {}
    assert differing_beside(compared) == {}


def test_no_call_is_lost_or_there_twice() -> None:
    assert len(CALLS) >= AT_LEAST
    assert len({call.name for call in CALLS}) == len(CALLS)


def test_every_listed_difference_names_a_call() -> None:
    assert rows_without_calls() == []
    assert listed_differences().keys() <= {call.name for call in CALLS}
