"""Spiders whose own code is told that there is no more: their run ends with the name of what they met."""

from __future__ import annotations

import pytest

from tests.agent.starting import Zygote


@pytest.mark.parametrize(
    ("of", "limits", "outcome", "said"),
    [
        ("memory", {"memory_bytes": 2**28}, "oom", "there is no memory left: MemoryError"),
        ("disk", {"file_bytes": 100_000}, "disk_limit", "OSError: [Errno 27] File too large"),
        ("files", {"files": 64}, "failed", "it has as many files open as it may, 64: OSError: [Errno 24]"),
    ],
)
def test_a_spider_that_gets_no_more_of_something_ends_with_its_name(
    warm: Zygote, of: str, limits: dict[str, int], outcome: str, said: str
) -> None:
    run = warm.run("takes", args={"of": of}, limits=limits)

    assert run.exit_code == 0
    assert run.end["outcome"] == outcome
    assert run.end["message"].startswith(said)
    assert run.items == [{"n": 1}], "what was yielded before is kept"


def test_a_run_whose_start_method_raises_says_what(warm: Zygote) -> None:
    run = warm.run("takes", args={"of": "trouble"})

    assert run.end == {"reason": "start_error", "outcome": "", "message": "ValueError: there is always more trouble"}
