"""Decides which URLs belong to a crawl."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from weft.crawl_spec import CrawlSpec
from weft.fetching.urls import Canonicalizer, host_of
from weft.patterns import compiled


class ScopeFilter:
    """The bounds of a crawl, by its seeds and its patterns. A crawl without seeds has none but its patterns.

    A name with ``www.`` before it is the same host: sites send visitors from one to the other.
    """

    def __init__(self, spec: CrawlSpec, seeds: Iterable[str]) -> None:
        spelling = Canonicalizer(spec.traps.keep_tracking, spec.traps.drop_parameters)
        known = [url for each in (*seeds, *spec.sitemaps) if (url := spelling.canonical(each)) is not None]
        self._within = spec.scope.within if known else "any"
        self._hosts = frozenset(_bare(host_of(url)) for url in known)
        self._domains = tuple(f".{_name(each)}" for each in sorted(self._hosts))
        self._folders = tuple(sorted({_folder(url) for url in known}))
        self._allow, self._deny = _any_of(spec.scope.allow), _any_of(spec.scope.deny)
        self._depth = spec.scope.depth
        self._is_plain = self._allow is None and self._deny is None

    def refuses(self, url: str, depth: int) -> str:
        """Why a canonical address is left out; empty: it belongs."""
        if depth > self._depth:
            return "depth"
        if self._within != "any" and not self._is_within(url):
            return "scope"
        if self._is_plain:
            return ""
        if self._allow is not None and not self._allow(url):
            return "allow"
        return "deny" if self._deny is not None and self._deny(url) else ""

    def _is_within(self, url: str) -> bool:
        if self._within == "host":
            host = host_of(url)
            return host in self._hosts or _bare(host) in self._hosts
        if self._within == "domain":
            return f".{_name(host_of(url))}".endswith(self._domains)
        return _bare(url.partition("://")[2]).startswith(self._folders)


def _bare(host: str) -> str:
    return host.removeprefix("www.")


def _name(host: str) -> str:
    """Without its port."""
    return host if host.endswith("]") else host.rpartition(":")[0] or host


def _folder(url: str) -> str:
    """The part of an address up to its last slash, without the scheme."""
    return _bare(url.partition("://")[2].partition("?")[0].rpartition("/")[0]) + "/"


def _any_of(patterns: tuple[str, ...]) -> Callable[[str], bool] | None:
    """Whether one of them fits; each for itself, since flags and groups are a matter of one pattern."""
    searches = [compiled(each).is_in for each in patterns]
    return (lambda url: any(search(url) for search in searches)) if searches else None
