"""From a name to addresses that were checked."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Protocol

from weft.addresses import Guard, RefusedAddress, literal
from weft.fetching.exchange import NoAnswer
from weft.fetching.names import SystemResolver

KEPT_SECONDS = 60.0
MOST_KEPT = 10_000
MOST_ADDRESSES = 50


class Resolver(Protocol):
    """Finds the addresses of a name."""

    async def resolve(self, host: str, port: int) -> list[str]:
        """In figures, best first; raises ``OSError`` where there are none."""


class CheckedNames:
    """Addresses of names, each looked up once a minute and each checked, so that what is connected to was checked.

    A name with one closed address among open ones is closed: who made it means no good.
    """

    def __init__(self, guard: Guard, resolver: Resolver | None = None) -> None:
        self._guard, self._resolver = guard, resolver or SystemResolver()
        self._known: OrderedDict[tuple[str, int], tuple[float, list[str]]] = OrderedDict()

    async def addresses(self, host: str, port: int) -> list[str]:
        """``NoAnswer`` where there are none, or where one is closed."""
        now = asyncio.get_running_loop().time()
        known = self._known.get((host, port))
        if known is not None and known[0] > now:
            return known[1]
        found = await self._look_up(host, port)
        self._known[host, port] = (now + KEPT_SECONDS, found)
        if len(self._known) > MOST_KEPT:
            self._known.popitem(last=False)
        return found

    def check(self, address: str) -> None:
        """Once more, what a socket says it is connected to."""
        try:
            self._guard.check(address)
        except RefusedAddress as problem:
            raise NoAnswer("refused_address", str(problem)) from problem

    async def _look_up(self, host: str, port: int) -> list[str]:
        try:
            self._guard.check_name(host)
            found = [host] if literal(host) is not None else await self._resolver.resolve(host, port)
            for address in found:
                self._guard.check(address)
        except RefusedAddress as problem:
            why = str(problem) if host in str(problem) else f"{host}: {problem}"
            raise NoAnswer("refused_address", why) from problem
        except (OSError, UnicodeError) as problem:
            raise NoAnswer("name", f"there is no host {host} ({problem})") from problem
        if not found:
            raise NoAnswer("name", f"there is no host {host}")
        return found[:MOST_ADDRESSES]
