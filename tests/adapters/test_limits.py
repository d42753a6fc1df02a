from __future__ import annotations

import msgspec
import pytest

from tests.cases import for_each
from weft.adapters.executors._spec import RANGES, Limits
from weft.adapters.executors._zygote import IMPORTING
from weft.errors import Invalid
from weft.user_code import KINDS


def test_a_run_without_limits_has_the_defaults() -> None:
    assert Limits.of({}) == Limits()


def test_what_a_spec_names_replaces_the_default() -> None:
    assert Limits.of({"items": 5, "files": None}) == Limits(items=5)


@for_each(
    ("given", "words"),
    [
        ({"memory": 5}, "a field of limits is 'memory'; the fields of limits are memory_bytes, cpu_seconds"),
        ({"memory_bytes": 5}, "limits.memory_bytes is 5; it must be a whole number from 67108864 to"),
        ({"cpu_seconds": "1"}, "limits.cpu_seconds is '1'; it must be a whole number from 0 to"),
        ({"processes": 0}, "limits.processes is 0; it must be a whole number from 1 to"),
        ({"items": -1}, "limits.items is -1; it must be a whole number from 0 to"),
        ({"files": True}, "limits.files is True; it must be a whole number from 64 to"),
        ({"disk_bytes": 1.5}, "limits.disk_bytes is 1.5; it must be a whole number from 1048576 to"),
        ([1], "the spec of limits is [1]; it must be a map with memory_bytes"),
    ],
)
def test_a_wrong_limit_is_refused_by_its_name(given: object, words: str) -> None:
    with pytest.raises(Invalid) as refused:
        Limits.of(given)  # type: ignore[arg-type]
    assert str(refused.value).startswith(words)


def test_every_limit_has_a_range_and_its_default_lies_in_it() -> None:
    defaults = msgspec.structs.asdict(Limits())
    assert RANGES.keys() == defaults.keys()
    assert all(least <= defaults[name] <= most for name, (least, most) in RANGES.items())


@pytest.mark.parametrize("kind", ["spider", "shell"])
def test_what_is_told_of_a_kind_is_what_its_runs_and_their_imports_are_held_to(kind: str) -> None:
    told = KINDS[kind].limits
    for limits in (Limits.of({}), IMPORTING):
        held = msgspec.structs.asdict(limits)
        assert {name: held[name] for name in told} == dict(told)
    assert {name for name, (least, _) in RANGES.items() if least} <= {*told, "item_bytes"}
