"""The spec of the kind ``crawl``: what is crawled, how politely, and what is kept of it. Values, no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from weft.errors import NOT_SHOWN, Invalid
from weft.patterns import compiled

Count = Annotated[int, Meta(ge=0, le=2**53)]
Small = Annotated[int, Meta(ge=1, le=10_000)]
Seconds = Annotated[float, Meta(ge=0, le=366 * 86_400)]
Text = Annotated[str, Meta(max_length=2_000)]
Texts = Annotated[tuple[Text, ...], Meta(max_length=10_000)]
Patterns = Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=500)], ...], Meta(max_length=100)]


RESERVED_HEADERS = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "proxy-authorization", "upgrade")
)
"""Headers that follow from the request and cannot be given."""
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
HEADER_VALUE = re.compile(r"[\t -~\x80-\xff]*").fullmatch

PAGES_DATASET = "pages"
"""The dataset of pages, where a spec names no other."""
PAGE_KEY = ("url",)
"""What makes a page the same, however often it is fetched."""


class SpecPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of a spec."""


class ScopeSpec(SpecPart, frozen=True):
    """Which of the addresses that are found belong to the crawl."""

    within: Literal["host", "domain", "path", "any"] = "host"
    """The hosts of the seeds, their domains with all below them, the folders of the seeds, or everything."""
    allow: Patterns = ()
    """Where there are any, an address must match one of these regular expressions."""
    deny: Patterns = ()
    """An address that matches one of these is skipped."""
    depth: Annotated[int, Meta(ge=0, le=1_000)] = 1_000
    """How many links away from a seed. The default does not cut off the archives of a blog, page after page."""
    nofollow: bool = False
    """Do not follow links that are marked nofollow."""
    noindex: bool = False
    """Keep no page that is marked noindex."""
    canonical: bool = False
    """Keep only the page that others call their canonical form."""
    sitemaps: bool = False
    """Take the addresses of the sitemaps that robots.txt names."""


class BudgetSpec(SpecPart, frozen=True):
    """Where the crawl ends, whatever is left; 0: nowhere."""

    pages: Count = 0
    pages_per_host: Count = 0
    bytes: Count = 0
    seconds: Seconds = 0.0


class PolitenessSpec(SpecPart, frozen=True):
    """How hosts are treated."""

    robots: bool = True
    delay_seconds: Seconds = 1.0
    """From the begin of a request to the begin of the next, on each host."""
    burst: Small = 1
    """How many requests a host that was left alone may get at once before the delay counts."""
    at_once_per_host: Small = 1
    address_delay_seconds: Seconds = 0.0
    """The same for an address, whose hosts may be many."""
    adaptive: bool = True
    """Wait longer where a host answers slowly."""
    longest_delay_seconds: Seconds = 30.0
    """How far the delay grows by itself."""
    longest_crawl_delay_seconds: Seconds = 300.0
    """A host whose robots.txt asks for more is parked, and that is told."""
    robots_seconds: Seconds = 86_400.0
    """How long a robots.txt counts."""
    errors_in_a_row: Small = 5
    """After so many a host is left alone for a while, each time for longer."""


class FetchingSpec(SpecPart, frozen=True):
    """How pages are asked for."""

    contact: Annotated[str, Meta(max_length=200)] = ""
    """An address, mail or web, where those who are crawled reach somebody; empty: the setting ``crawl_contact``."""
    user_agent: Annotated[str, Meta(max_length=200)] = ""
    """What the crawl calls itself; the contact stands behind it. Empty: weft and its version."""
    headers: Annotated[dict[str, str], Meta(max_length=50)] = {}
    username: Text = ""
    password: Text = ""
    """For sites that ask for HTTP's own login; give ``{{secret:NAME}}``."""
    cookies: bool = True
    proxies: Annotated[str, Meta(max_length=100)] = ""
    """The proxy plan that is used; empty: always direct."""
    http2: bool = True
    verify_tls: bool = True
    at_once: Small = 10
    """Requests under way in one process."""
    deadline_seconds: Annotated[float, Meta(gt=0, le=3_600)] = 60.0
    largest_body: Annotated[int, Meta(ge=1_000, le=1 << 30)] = 32 << 20
    """Bytes after decompression; what is longer is not kept."""
    redirects: Annotated[int, Meta(ge=0, le=50)] = 10
    retries: Annotated[int, Meta(ge=0, le=100)] = 3
    retry_seconds: Seconds = 30.0
    """Before the first of them; each waits twice as long as the one before it."""


class TrapSpec(SpecPart, frozen=True):
    """When an address or a page is taken for a trap."""

    level: Literal["off", "normal", "strict"] = "normal"
    """``strict``: pages that are alike make a trap, and so do dates far ahead; ``normal``: only with a second sign that
    there is no end; ``off``: nothing is taken for a trap."""
    url_length: Annotated[int, Meta(ge=100, le=8_192)] = 2_048
    segments: Small = 20
    repeats: Small = 3
    """How often a segment of a path may stand in it."""
    links_per_page: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    pages_per_pattern: Count = 5_000
    """How many addresses of a host may differ only in numbers, dates or values of parameters; a hundred times as many
    where one part of the path varies and nothing else."""
    near_duplicates: Annotated[int, Meta(ge=0, le=1_000)] = 20
    """So many pages in a row that are like one another raise the suspicion that their pattern has no end; 0: do not
    look."""
    soft_404: bool = True
    drop_parameters: Patterns = ()
    """Names of parameters, as regular expressions, that are taken out of addresses besides the known ones."""
    keep_tracking: bool = False
    """Leave parameters that are known to track people, and session ids, where they are."""


class FieldSpec(SpecPart, frozen=True):
    """One field of an item, taken from a page."""

    css: Text = ""
    xpath: Text = ""
    jsonpath: Text = ""
    """Into JSON pages and the page's JSON-LD. One of the three is given."""
    attribute: Annotated[str, Meta(max_length=100)] = ""
    """Instead of the text."""
    type: Literal["text", "number", "whole", "flag", "time", "url", "html"] = "text"
    many: bool = False
    required: bool = False


class OutputSpec(SpecPart, frozen=True):
    """What is kept of a page."""

    links: bool = True
    text: bool = False
    markdown: bool = False
    language: bool = False
    structured: bool = False
    """JSON-LD, OpenGraph and microdata."""
    fields: Annotated[dict[str, FieldSpec], Meta(max_length=200)] = {}
    warc: bool = True
    """The raw exchanges, as WARC files with a CDXJ index."""
    warc_bytes: Annotated[int, Meta(ge=1_000_000, le=5_000_000_000)] = 256_000_000
    """Where a WARC file ends and the next begins."""


class RevisitSpec(SpecPart, frozen=True):
    """When a page is fetched again; never where the policy is ``none``."""

    policy: Literal["none", "fixed", "adaptive", "lastmod"] = "none"
    seconds: Seconds = 86_400.0
    """The interval, or the first one; at least ``least_seconds``."""
    least_seconds: Seconds = 3_600.0
    most_seconds: Seconds = 31_536_000.0


class CrawlSpec(SpecPart, frozen=True):
    """What a task of the kind ``crawl`` says."""

    urls: Texts = ()
    """Where it begins."""
    sitemaps: Texts = ()
    """Sitemaps whose addresses are seeds as well."""
    follow: bool = False
    """Crawl what pages link to; without it the seeds are fetched and nothing else."""
    tier: Literal["both", "discover", "fetch"] = "both"
    """``discover``: find addresses and hand those that match ``feeds`` to another crawl; ``fetch``: take them."""
    feeds: Annotated[str, Meta(max_length=100)] = ""
    """The name of the crawl that gets what this one discovers."""
    spread: Annotated[int, Meta(ge=0, le=1_000)] = 0
    """In how many runs it is done at once; 0: in as many as there are workers."""
    dataset: Annotated[str, Meta(min_length=1, max_length=100)] = PAGES_DATASET
    crawl: Count = 0
    """The crawl that this run does a share of; 0: one of its own."""
    scope: ScopeSpec = ScopeSpec()
    budget: BudgetSpec = BudgetSpec()
    politeness: PolitenessSpec = PolitenessSpec()
    fetching: FetchingSpec = FetchingSpec()
    traps: TrapSpec = TrapSpec()
    keeping: OutputSpec = OutputSpec()
    revisit: RevisitSpec = RevisitSpec()
    limits: Annotated[dict[str, Any], Meta(max_length=50)] = {}
    """Of its process: memory, CPU; as those of a spider."""


def read(spec: Mapping[str, Any]) -> CrawlSpec:
    """A spec that is right, or ``Invalid`` that says what is wrong with it."""
    try:
        read = msgspec.convert(dict(spec), CrawlSpec)
    except msgspec.ValidationError as problem:
        raise _refusal(spec, str(problem)) from problem
    if not read.urls and not read.sitemaps and not read.crawl and read.tier != "fetch":
        raise Invalid("crawl.urls", NOT_SHOWN, "it must have at least one address to begin with")
    for field in ("scope.allow", "scope.deny", "traps.drop_parameters"):
        part, _, name = field.partition(".")
        for pattern in getattr(getattr(read, part), name):
            _check_pattern(f"crawl.{field}", pattern)
    for name, rule in read.keeping.fields.items():
        if sum(map(bool, (rule.css, rule.xpath, rule.jsonpath))) != 1:
            raise Invalid(f"crawl.keeping.fields.{name}", "", "one of css, xpath and jsonpath must be given")
    _check_headers(read.fetching)
    if read.feeds and read.tier != "discover":
        raise Invalid("crawl.feeds", read.feeds, "only a crawl whose tier is discover feeds another")
    _check_revisit(read.revisit, begun=bool(read.crawl))
    return read


def _check_revisit(revisit: RevisitSpec, *, begun: bool) -> None:
    least, most = revisit.least_seconds, revisit.most_seconds
    if least > most:
        raise Invalid("crawl.revisit.least_seconds", least, f"it must be at most most_seconds, which is {most}")
    if revisit.policy != "none" and revisit.seconds < least and not begun:
        wanted = f"it must be at least least_seconds, which is {least:g}; to visit pages sooner, lower that as well"
        raise Invalid("crawl.revisit.seconds", revisit.seconds, wanted)


def _check_headers(fetching: FetchingSpec) -> None:
    """Whether requests can be sent as the spec says; values are not shown, because they may be secret."""
    for name, value in fetching.headers.items():
        if not HEADER_NAME(name) or name.lower() in RESERVED_HEADERS:
            raise Invalid("a name in crawl.fetching.headers", name, f"it must be one of a header, not of {_reserved()}")
        if not HEADER_VALUE(value):
            raise Invalid(f"crawl.fetching.headers.{name}", NOT_SHOWN, "it must be one line of Latin characters")
    for field, told in (("user_agent", fetching.user_agent), ("contact", fetching.contact)):
        if not HEADER_VALUE(told):
            raise Invalid(f"crawl.fetching.{field}", told, "it must be one line of Latin characters")


def _reserved() -> str:
    return f"{', '.join(sorted(RESERVED_HEADERS)[:-1])} or {sorted(RESERVED_HEADERS)[-1]}"


def _check_pattern(field: str, pattern: str) -> None:
    compiled(pattern, field)


_UNKNOWN = re.compile(r"unknown field `(?P<name>.*)`")
_PLACE = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<field>[^`]*)`)?$", re.DOTALL)


def _refusal(spec: Mapping[str, Any], problem: str) -> Invalid:
    """Which field is wrong and what it must be; a value is not shown, because it may be secret."""
    found = _PLACE.match(problem)
    what, field = (found["what"], found["field"] or "") if found else (problem, "")
    part = f"crawl.{field}".rstrip(".")
    if unknown := _UNKNOWN.search(what):
        known = _part(field).__struct_fields__
        return Invalid(f"a field of {part}", unknown["name"], f"the fields of {part} are {', '.join(known)}")
    shown = spec.get(field) if field in ("urls", "sitemaps", "follow", "tier", "spread") else NOT_SHOWN
    return Invalid(part, shown, what[:1].lower() + what[1:])


def _part(field: str) -> type[SpecPart]:
    """The part of a spec that a field is in."""
    parts: dict[str, type[SpecPart]] = {
        "scope": ScopeSpec,
        "budget": BudgetSpec,
        "politeness": PolitenessSpec,
        "fetching": FetchingSpec,
        "traps": TrapSpec,
        "keeping": OutputSpec,
        "revisit": RevisitSpec,
    }
    return FieldSpec if field.startswith("keeping.fields") else parts.get(field, CrawlSpec)


def check_extras(keeping: OutputSpec) -> None:
    """Refuse what only an extra can read out of pages, where it is not installed: each run of the crawl would fail."""
    wanted = {"text": keeping.text, "markdown": keeping.markdown}
    wanted |= {f"fields.{name}": bool(rule.jsonpath) for name, rule in keeping.fields.items()}
    for name, is_wanted in wanted.items():
        package = "jsonpath_rfc9535" if name.startswith("fields.") else "turbohtml"
        if is_wanted and find_spec(package) is None:
            raise Invalid(
                f"keeping.{name}",
                NOT_SHOWN,
                "this needs a package that is not installed: pip install 'weft[text]' where weft and its workers run",
            )
