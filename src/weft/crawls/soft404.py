"""Pages that say "not found" with status 200: a host is asked once for an address that it cannot have."""

from __future__ import annotations

from dataclasses import dataclass, field

import xxhash

from weft.crawls.near import are_alike
from weft.fetching.urls import host_of, origin_of

MOST_HOSTS = 10_000


def made_up(url: str) -> str:
    """An address of the same host that nobody has made, the same one each time."""
    origin = origin_of(url)
    return f"{origin}/{xxhash.xxh3_64_hexdigest(origin.encode())}-no-such-page"


@dataclass(slots=True)
class NoSuchPages:
    """What hosts answer where there is no page."""

    _answers: dict[str, int] = field(default_factory=dict)

    def is_known(self, host: str) -> bool:
        return host in self._answers

    def learn(self, url: str, status: int, simhash: int) -> None:
        """What came back for a made-up address; a host that says 404 has no soft ones."""
        if len(self._answers) >= MOST_HOSTS:
            del self._answers[next(iter(self._answers))]
        self._answers[host_of(url)] = simhash if 200 <= status < 300 else 0

    def is_like(self, host: str, simhash: int) -> bool:
        """Whether a page is what this host says for pages that it does not have."""
        answer = self._answers.get(host, 0)
        return bool(answer) and are_alike(answer, simhash)
