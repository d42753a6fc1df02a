"""Limits that all processes share, in Redis: one script, on the server's clock (``script.py``).

``redis://host?replicas=1`` grants only what a replica knows as well, so that an old primary that is cut off grants
nothing. ``?away=stop`` grants nothing while Redis does not answer; else each worker has its share of each limit then,
as far as it knows how many there are, and for a minute. Nobody ever gets more because Redis is away.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any
from urllib.parse import parse_qs, urlsplit

from weft.adapters.brokers.resp import Address, Command, Connection, ReplyError
from weft.adapters.limiters.memory import FORGOTTEN_AFTER, MICRO, MOST_KEPT, Clock, MemoryLimiter, monotonic, rate_of
from weft.adapters.limiters.redis_script import SCRIPT, SETTLE_SECONDS
from weft.errors import LimiterDown, Misconfigured
from weft.ports import Grant, Rate

log = logging.getLogger(__name__)

PREFIX = "{weft}:limit:"
"""Its braces keep all keys on one node of a cluster, as a script needs it."""

SHA = hashlib.sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest()
PATIENCE_SECONDS = 1.0
BEAT_SECONDS = 0.5
FRESH_SECONDS = SETTLE_SECONDS - 0.5
"""A place may be used while the server was heard of so lately; a new epoch grants nothing for longer than that."""

SILENT_SECONDS = 3.0
"""A worker that is silent for so long may have begun to help itself to its share."""

SHARE_SECONDS = 60.0
"""For how long it may; the server leaves that share alone for a little longer."""

LOCAL = "local"


class RedisLimiter:
    def __init__(self, url: str, rates: Mapping[str, Rate] | None = None, *, server_clock: Clock | None = None) -> None:
        self._address = Address.parse(url)
        self._replicas, self._shares = _options(url)
        self._server_clock = server_clock
        self._name = f"{os.getpid()}.{os.urandom(4).hex()}"
        self._line: Connection | None = None
        self._opening = asyncio.Lock()
        self._beating: asyncio.Task[None] | None = None
        self._server = self._epoch = ""
        self._contact = self._back_at = self._again_at = 0
        self._known = 0
        self._away = False
        self._local: MemoryLimiter | None = None
        self._rates = dict(rates or {})
        self._wanted = dict(rates or {})
        self._told: dict[str, Rate] = {}
        """Of single keys. Both are said again to a server that may have forgotten them."""

    async def set(self, rates: Mapping[str, Rate]) -> None:
        """Raises ``LimiterDown`` where Redis does not answer: a limit that is not set is no limit."""
        kinds = {key: rate for key, rate in rates.items() if key.endswith(":")}
        single = {key: rate for key, rate in rates.items() if key not in kinds}
        if kinds:
            await self._send(_setting(kinds))
        if single:
            await self._tell(single)
            self._told = _newest(self._told, single)
        self._remember(rates)

    async def reserve(
        self, keys: Sequence[str], cost: float = 1.0, longest_wait: float = 60.0, lead: float = 0.0
    ) -> Grant:
        names = tuple(dict.fromkeys(keys))
        if (rest := self._rest_after_return(names)) > 0:
            return Grant(False, rest, epoch=self._epoch)
        places = [f"{PREFIX}bucket:{name}" for name in names]
        try:
            spans = (str(round(span * MICRO)) for span in (longest_wait, lead))
            reply = await self._step("reserve", places, repr(cost), *spans, *names)
        except LimiterDown:
            return await self._share(names, cost, longest_wait, lead)
        self._remember({name: _rate(words) for name, words in zip(names, reply[5], strict=True)})
        return Grant(bool(reply[0]), reply[1] / MICRO, turns=tuple(reply[4]), epoch=self._epoch)

    def holds(self, grant: Grant) -> bool:
        if not grant.granted:
            return False
        if grant.degraded:
            return self._away and self._local is not None and self._silence() < SHARE_SECONDS
        return not self._away and grant.epoch == self._epoch and self._silence() < FRESH_SECONDS

    async def give_back(self, keys: Sequence[str], grant: Grant, cost: float = 1.0) -> None:
        """Where Redis is away, the place stays empty."""
        names = tuple(dict.fromkeys(keys))
        places = [f"{PREFIX}bucket:{name}" for name in names]
        pairs = [word for name, turn in zip(names, grant.turns, strict=True) for word in (name, str(turn))]
        if grant.degraded or grant.epoch != self._epoch:
            return
        with suppress(LimiterDown):
            await self._step("give_back", places, repr(cost), *pairs)

    async def penalise(self, key: str, seconds: float) -> None:
        if self._local is not None:
            await self._local.penalise(key, seconds)
        with suppress(LimiterDown):
            await self._step("penalise", [f"{PREFIX}bucket:{key}"], str(round(seconds * MICRO)), key)

    async def hold(self, key: str, holder: str, seconds: float) -> Grant:
        """Nothing is granted while Redis is away: nobody knows who else is under way."""
        try:
            reply = await self._step("hold", [f"{PREFIX}held:{key}"], str(round(seconds * MICRO)), holder, key)
        except LimiterDown:
            known = rate_of(self._rates, key).at_once == 0 and self._contact > 0
            return Grant(known, 0.0 if known else BEAT_SECONDS, degraded=True, epoch=LOCAL)
        return Grant(bool(reply[0]), reply[1] / MICRO, epoch=self._epoch)

    async def release(self, key: str, holder: str) -> None:
        """Where Redis is away, the place is free when its time is over."""
        with suppress(LimiterDown):
            await self._step("release", [f"{PREFIX}held:{key}"], holder)

    @property
    def degraded(self) -> bool:
        return self._away

    async def close(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
        if self._line is not None and self._line.is_open and self._shares:
            with suppress(LimiterDown):
                await self._step("leave", [], self._name)
        if self._line is not None:
            await self._line.close()

    async def _share(self, names: Sequence[str], cost: float, longest_wait: float, lead: float) -> Grant:
        """A place in a line of our own: this worker's part of the limit, while it may be taken."""
        if not self._shares or not self._known or self._silence() >= SHARE_SECONDS:
            return Grant(False, BEAT_SECONDS, degraded=True, epoch=LOCAL)
        if self._local is None:
            self._local = MemoryLimiter(began=self._contact + round(SILENT_SECONDS * MICRO))
        await self._local.set({name: _part(rate_of(self._rates, name), self._known) for name in names})
        grant = await self._local.reserve(names, cost, longest_wait, lead)
        return Grant(grant.granted, grant.wait_seconds, degraded=True, turns=grant.turns, epoch=LOCAL)

    async def _tell(self, rates: Mapping[str, Rate]) -> None:
        pairs = [word for rate in rates.values() for word in (_words(rate), str(_kept_for(rate)))]
        await self._step("set", [f"{PREFIX}rates:{key}" for key in rates], *pairs)

    def _remember(self, rates: Mapping[str, Rate]) -> None:
        """What each key allows; of single keys only those that were asked for last, since a crawl has many hosts."""
        newest = _newest(self._rates, rates)
        if newest is not self._rates:
            newest |= {key: rate for key, rate in self._rates.items() if key.endswith(":")}
        self._rates = newest

    def _rest_after_return(self, names: Sequence[str]) -> float:
        """Seconds until one full delay has passed since Redis came back."""
        delay = max((1 / rate_of(self._rates, name).per_second for name in names), default=0.0)
        return self._back_at / MICRO + delay - monotonic() / MICRO if self._back_at else 0.0

    def _silence(self) -> float:
        """Seconds since the last question that was answered was asked."""
        return (monotonic() - self._contact) / MICRO

    async def _step(self, op: str, places: Sequence[str], *arguments: str) -> Any:
        """Take one step of the script; what it says of the epoch and of the others is remembered."""
        reply = await self._send(self._command(op, places, arguments))
        before, self._epoch, self._known = self._epoch, reply[2].decode(), reply[3]
        if before and before != self._epoch:
            await self._say_again()
        if self._away:
            log.info("the limiter answers again")
            self._away, self._local, self._back_at = False, None, monotonic()
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat())
        return reply

    async def _say_again(self) -> None:
        if self._wanted:
            await self._send(_setting(self._wanted))
        if self._told:
            await self._tell(self._told)

    def _command(self, op: str, places: Sequence[str], arguments: Sequence[str]) -> Command:
        keys = [PREFIX + "epoch", PREFIX + "rates", PREFIX + "members", *places]
        given = "" if self._server_clock is None else str(self._server_clock())
        spans = (SETTLE_SECONDS, SILENT_SECONDS - 0.5, SHARE_SECONDS + 5.0)
        head = (op, "", given, *(str(round(span * MICRO)) for span in spans))
        return ("EVALSHA", SHA, len(keys), *keys, *head, *arguments)

    async def _send(self, command: Command) -> Any:
        """The reply to a command that enough replicas know of as well. Raises ``LimiterDown``."""
        asked_at = monotonic()
        if self._away and asked_at < self._again_at:
            raise LimiterDown("redis", "it did not answer just now")
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                line = await self._open_line()
                reply = await self._answered(line, command)
                if self._replicas:
                    await self._see_replicated(line)
        except (OSError, TimeoutError, ReplyError) as problem:
            self._lose(problem)
            raise LimiterDown("redis", problem or type(problem).__name__) from problem
        self._contact = max(self._contact, asked_at)
        return reply

    async def _answered(self, line: Connection, command: Command) -> Any:
        if command[0] != "EVALSHA":
            return await line.call(*command)
        count = int(command[2])
        head, rest = command[3 : 3 + count], list(command[3 + count :])
        rest[1] = self._server
        try:
            return await line.call("EVALSHA", SHA, count, *head, *rest)
        except ReplyError as refusal:
            if refusal.code != "NOSCRIPT":
                raise
            return await line.call("EVAL", SCRIPT, count, *head, *rest)

    async def _see_replicated(self, line: Connection) -> None:
        known_by = await line.call("WAIT", self._replicas, round(PATIENCE_SECONDS * 500))
        if known_by < self._replicas:
            raise TimeoutError(f"{known_by} replicas of Redis know of this, and {self._replicas} must")

    async def _open_line(self) -> Connection:
        async with self._opening:
            if self._line is None or not self._line.is_open:
                line = await Connection.open(self._address)
                self._server = _run_id(await line.call("INFO", "server"))
                self._line = line
                if self._wanted:
                    await line.call(*_setting(self._wanted))
                if self._shares:
                    await self._answered(line, self._command("beat", [], [self._name]))
            return self._line

    def _lose(self, problem: BaseException) -> None:
        if self._line is not None:
            self._line.abort()
            self._line = None
        if not self._away:
            log.warning("the limiter does not answer", extra={"why": str(problem) or type(problem).__name__})
        self._away, self._again_at = True, monotonic() + round(BEAT_SECONDS / 2 * MICRO)

    async def _beat(self) -> None:
        """Let the server know that we are there, and know ourselves that it is."""
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            with suppress(LimiterDown):
                await self._step("beat", [], self._name if self._shares else "")


def _options(url: str) -> tuple[int, bool]:
    """How many replicas must know of a grant, and whether there are shares while Redis is away."""
    options = parse_qs(urlsplit(url).query)
    replicas, away = options.pop("replicas", ["0"])[-1], options.pop("away", ["share"])[-1]
    if options or not replicas.isdigit() or away not in ("share", "stop"):
        raise Misconfigured("the address of the limiter takes ?replicas=NUMBER and ?away=share or ?away=stop only")
    return int(replicas), away == "share"


def _run_id(info: bytes) -> str:
    """What a server calls itself from its start to its end."""
    lines = dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)
    return lines.get("run_id", "")


def _setting(rates: Mapping[str, Rate]) -> Command:
    return ("HSET", PREFIX + "rates", *(word for key, rate in rates.items() for word in (key, _words(rate))))


def _newest(known: dict[str, Rate], said: Mapping[str, Rate]) -> dict[str, Rate]:
    """What is known with what was said now, which comes last; of very many only the last are kept."""
    for key, rate in said.items():
        known.pop(key, None)
        known[key] = rate
    return known if len(known) <= 2 * MOST_KEPT else dict(islice(known.items(), len(known) - MOST_KEPT, None))


def _kept_for(rate: Rate) -> int:
    """Milliseconds until the limit of a single key is forgotten that nobody says again; by then its bucket is full."""
    return round(2 * FORGOTTEN_AFTER / 1_000 + rate.burst / rate.per_second * 1_000)


def _words(rate: Rate) -> str:
    return f"{rate.per_second!r} {rate.burst!r} {rate.at_once}"


def _rate(words: bytes) -> Rate:
    rate, burst, at_once = words.decode().split()
    return Rate(float(rate), float(burst), int(at_once))


def _part(rate: Rate, workers: int) -> Rate:
    return Rate(rate.per_second / workers, rate.burst / workers, rate.at_once)
