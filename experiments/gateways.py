"""Several gateways as a client sees them that knows more than one address."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from weft.client.client import Client, connect
from weft.errors import GatewayDown
from weft.runs.model import NewRun, Submitted

T = TypeVar("T")


class Gateways:
    """Calls one gateway after the other. What does not come through is tried at the next one, where there is one."""

    def __init__(self, addresses: Sequence[str], token: str, *, looks: bool = True) -> None:
        self._clients, self._looks = [connect(address, token) for address in addresses], looks
        self._turns = itertools.count()
        self.again = 0
        """How many calls had to be tried a second time."""

    async def submit(self, new: Sequence[NewRun]) -> list[Submitted]:
        """Submit runs and, where it ``looks``, look at the first of them."""
        submitted = await self._call(lambda weft: weft.runs.submit(new))
        if self._looks:
            await self._call(lambda weft: weft.runs.get(submitted[0].run_id))
        return submitted

    async def close(self) -> None:
        for weft in self._clients:
            await weft.close()

    async def _call(self, act: Callable[[Client], Awaitable[T]]) -> T:
        first = next(self._turns) % len(self._clients)
        try:
            return await act(self._clients[first])
        except GatewayDown:
            if len(self._clients) == 1:
                raise
            self.again += 1
        return await act(self._clients[(first + 1) % len(self._clients)])
