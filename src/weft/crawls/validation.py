"""Validates a crawl before it begins: its URLs, its name, and a contact for those who are crawled."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from weft import crawl_spec
from weft.access.model import NAME
from weft.address_guard import Guard, RefusedAddress
from weft.crawl_spec import CrawlSpec
from weft.crawler.messages import CrawlPolicy
from weft.crawler.reasons import describe_reason
from weft.errors import NOT_SHOWN, Invalid
from weft.fetching.urls import canonical, host_of

_CONTACT = re.compile(r"[^@\s<>()]+@[^@\s<>()]+|https?://[^\s<>()]+", re.ASCII)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+", re.ASCII)


def validated_spec(spec: Mapping[str, Any] | CrawlSpec, policy: CrawlPolicy) -> CrawlSpec:
    """The spec of a crawl that may begin; ``Invalid`` names the field that is wrong."""
    read = crawl_spec.read(msgspec.to_builtins(spec) if isinstance(spec, CrawlSpec) else spec)
    if read.crawl:
        raise Invalid("crawl", read.crawl, "a new crawl is no partition of another; leave it out")
    check_environment(read, policy)
    return read


def check_environment(read: CrawlSpec, policy: CrawlPolicy) -> None:
    """Refuse what may not be crawled from here, or with nobody to be reached about it."""
    check_contact(read.fetching.contact or policy.contact)
    guard = Guard(policy.allowed_networks)
    for field, urls in (("urls", read.urls), ("sitemaps", read.sitemaps)):
        for url in urls:
            check_address(field, url, guard)
    crawl_spec.check_extras(read.keeping)
    if read.keeping.fields:
        from weft.crawler.fields import check_fields  # lxml costs 10 MB

        check_fields(read.keeping.fields)


def check_contact(contact: str) -> None:
    if not contact:
        raise Invalid(
            "fetching.contact",
            NOT_SHOWN,
            "those who are crawled must be able to reach somebody; give a mail or web address (--contact), "
            "or set crawl_contact once for all crawls",
        )
    if not _CONTACT.fullmatch(contact):
        raise Invalid("fetching.contact", contact, "it must be a mail address or an http(s) address")


def check_address(field: str, url: str, guard: Guard) -> str:
    """The address in its one spelling."""
    found = canonical(url)
    if found is None:
        raise Invalid(field, url, "it must be an http or https address, such as https://site.example/")
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise Invalid(field, found, "it was given with a login; give that as fetching.username and fetching.password")
    try:
        guard.check_name(_bare_host(host_of(found)))
    except RefusedAddress as refused:
        raise Invalid(field, url, str(refused)) from refused
    return found


def _bare_host(host: str) -> str:
    """The name or number of a host, without its port."""
    if host.startswith("["):
        return host[1 : host.find("]")]
    return host.partition(":")[0]


def crawl_name(name: str, spec: CrawlSpec) -> str:
    """What the crawl is called: as was told, or like the host where it begins."""
    if not name:
        first = next((url for url in (*spec.urls, *spec.sitemaps)), "")
        host = host_of(canonical(first) or "http://crawl/")
        name = _NOT_IN_NAMES.sub("-", host).strip("-.")[:100] or "crawl"
    check_name("name", name)
    return name


def check_name(field: str, name: str) -> None:
    if not NAME.fullmatch(name):
        raise Invalid(field, name, "it must be letters, digits, '.', '_' and '-', at most 100, begun with no sign")


def check_reason(reason: str, crawl_id: int, there: Sequence[str]) -> None:
    """Refuse a name that is none of a reason; ``there`` are those that the crawl has."""
    if describe_reason(reason) == reason and reason not in there:
        has = f"has {', '.join(sorted(there))}" if there else "has left out nothing yet"
        raise Invalid("reason", reason, f"there is none of that name, and crawl {crawl_id} {has}")


def partition_spec(spec: CrawlSpec, crawl_id: int) -> dict[str, Any]:
    """What a run is given that does a partition of a crawl."""
    built: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(spec, crawl=crawl_id))
    return built
