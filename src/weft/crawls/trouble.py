"""What is wrong with a host of which pages are still wanted, in words, as whoever held it last has found."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from weft.crawl_ports import KnownHost
    from weft.fetching.exchange import NoAnswer

LONGEST = 200


class _Left(msgspec.Struct):
    """The part of a host's state that this is about."""

    trouble: str = ""


class Holder(Protocol):
    """A run that holds hosts while it is running, as far as this is about it."""

    @property
    def run_id(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def state(self) -> str: ...


def answered_with(status: int) -> str:
    return f"answers with status {status}"


def without_answer(problem: NoAnswer) -> str:
    """The same where there is no answer; it is told beside the host, which need not stand in it again."""
    words = str(problem).rpartition(" cannot be reached: ")[2]
    return f"does not answer ({words[:LONGEST]})"


def left_behind(holder: str, shares: Iterable[Holder]) -> bool:
    """Whether a host's holder is an attempt of one of these runs that is gone, and had no time to give it back."""
    run, _, attempt = holder.partition(":")
    mine = [share for share in shares if str(share.run_id) == run]
    return any(share.state != "running" or str(share.attempt) != attempt for share in mine)


def told(known: KnownHost) -> str:
    """What follows the name of the host in a sentence, such as: does not answer (connection refused); or nothing."""
    if not (known.counts.queued or known.counts.leased) or "trouble" not in known.state:
        return ""
    try:
        return msgspec.json.decode(known.state, type=_Left).trouble
    except msgspec.MsgspecError:
        return ""


def kept(trouble: str) -> str:
    """A state of a host of which nothing else is known, for ``told``."""
    return msgspec.json.encode(_Left(trouble)).decode() if trouble else ""
