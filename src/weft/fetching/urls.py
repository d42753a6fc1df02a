"""Canonical URLs by the WHATWG rules, without tracking and session parameters; their hosts, origins and keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import xxhash
from url import URL, URLError

from weft.patterns import Pattern, compiled

LONGEST_URL = 8_192
"""Characters of an address that anybody keeps."""
LONGEST_HOST = 260

TRACKING = (
    *("utm_*", "hsa_*", "pk_*", "piwik_*", "mtm_*", "matomo_*"),
    *("gclid", "gclsrc", "dclid", "gbraid", "wbraid", "gad_source", "gad_campaignid", "fbclid", "msclkid", "twclid"),
    *("ttclid", "yclid", "ysclid", "li_fat_id", "igshid", "igsh", "mc_cid", "mc_eid", "_ga", "_gl", "_hsenc", "_hsmi"),
    *("__hstc", "__hssc", "__hsfp", "hsctatracking", "mkt_tok", "oly_anon_id", "oly_enc_id", "vero_id", "vero_conv"),
    *("wickedid", "rb_clickid", "s_cid", "ef_id", "epik", "irclickid", "_openstat", "zanpid", "sc_cid", "srsltid"),
)
"""Parameters that follow people around, by name, or by how the name begins."""
SESSIONS = (
    *("jsessionid", "phpsessid", "aspsessionid*", "sessionid", "session_id", "sessid", "cfid", "cftoken"),
    *("oscsid", "zenid", "xtcsid", "bbsessid"),
)
"""Parameters that are a session and nothing else."""
MAYBE_SESSIONS = ("sid", "s", "session", "token")
"""Parameters that are a session where their value is a long hexadecimal number."""

_NAMES = frozenset(name for name in (*TRACKING, *SESSIONS) if not name.endswith("*"))
_STARTS = tuple(name.removesuffix("*") for name in (*TRACKING, *SESSIONS) if name.endswith("*"))
_MAYBE = re.compile(rf"(?:{'|'.join(MAYBE_SESSIONS)})=[0-9a-f]{{16,}}", re.IGNORECASE)
_SESSION_PATH = re.compile(
    r";(?:jsessionid|phpsessid|sid|sessionid)=[^;/?]*|/\([a-z]\([a-z0-9]{20,}\)\)(?=/|$)", re.IGNORECASE
)
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_UNUSUAL, _ODD = re.compile(r"[?%;@(#]"), re.compile(r"[%;@(#]")
_STAYS, _GOES, _MAY_GO = 0, 1, 2
_MOST_VERDICTS = 10_000


@dataclass(frozen=True, slots=True)
class Canonicalizer:
    """What is left out of addresses."""

    keep_tracking: bool = False
    drop_parameters: tuple[str, ...] = ()
    """Names of further parameters, as regular expressions."""
    _names: tuple[Pattern, ...] = field(init=False, repr=False, compare=False)
    _verdicts: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Whether a parameter goes, by its name: pages use the same few again and again."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_names", tuple(compiled(each) for each in self.drop_parameters))

    def canonical(self, url: str) -> str | None:
        """The address in its one spelling; None where it is none of the web."""
        try:
            return self._tidy(str(URL.parse(url)).partition("#")[0])
        except (URLError, UnicodeError):
            return None

    def resolve(self, base: str, hrefs: Iterable[str]) -> list[str]:
        """Where links of a page lead, in order and without doubles; what leads nowhere on the web is left out."""
        found = dict.fromkeys(self.each(base, hrefs))
        found.pop("", None)
        return list(found)

    def each(self, base: str, hrefs: Iterable[str]) -> list[str]:
        """Where each link of a page leads; empty where that is nowhere on the web."""
        try:
            join = URL.parse(base).join
        except (URLError, UnicodeError):
            return ["" for _ in hrefs]
        near, unusual, odd, kept = origin_of(base) + "/", _UNUSUAL.search, _ODD.search, self._kept
        found: list[str] = []
        for href in hrefs:
            try:
                text = str(join(href))
            except (URLError, UnicodeError):
                found.append("")
                continue
            is_near = text.startswith(near)
            if is_near and not unusual(text):
                found.append(text)
            elif is_near and not odd(text):  # it has a query, and nothing else that is worth a look
                place, _, query = text.partition("?")
                query = kept(query) if query else ""
                found.append(f"{place}?{query}" if query else place)
            else:
                found.append(self._tidy(text.partition("#")[0]) or "")
        return found

    def _tidy(self, text: str) -> str | None:
        """Of an address in the WHATWG form, without a fragment."""
        if not text.startswith(("http://", "https://")):
            return None
        if "%" in text:
            text = _unescaped(text)
        scheme, _, rest = text.partition("://")
        authority, slash, rest = rest.partition("/")
        host = authority.rpartition("@")[2]
        if len(host) > LONGEST_HOST:
            return None
        path, mark, query = rest.partition("?")
        if not self.keep_tracking and (";" in path or "(" in path):
            path = _SESSION_PATH.sub("", slash + path).removeprefix("/")
        if mark and query:
            query = self._kept(query)
        return f"{scheme}://{_without_dot(host)}/{path}" + (f"?{query}" if query else "")

    def _kept(self, query: str) -> str:
        """The parameters that say something about the page."""
        is_dropped = self._is_dropped
        if "&" not in query:
            return "" if is_dropped(query) else query
        return "&".join([each for each in query.split("&") if not is_dropped(each)])

    def _is_dropped(self, parameter: str) -> bool:
        name = parameter.partition("=")[0]
        verdict = self._verdicts.get(name)
        if verdict is None:
            if len(self._verdicts) >= _MOST_VERDICTS:
                self._verdicts.clear()
            verdict = self._verdicts[name] = self._verdict(name)
        return verdict == _GOES or (verdict == _MAY_GO and _MAYBE.fullmatch(parameter) is not None)

    def _verdict(self, name: str) -> int:
        if any(each.is_all_of(name) for each in self._names):
            return _GOES
        name = name.lower()
        if self.keep_tracking:
            return _STAYS
        if name in _NAMES or name.startswith(_STARTS):
            return _GOES
        return _MAY_GO if name in MAYBE_SESSIONS else _STAYS


DEFAULT_CANONICALIZER = Canonicalizer()

canonical = DEFAULT_CANONICALIZER.canonical


def resolve(base: str, hrefs: Sequence[str], spelling: Canonicalizer = DEFAULT_CANONICALIZER) -> list[str]:
    """Where links of a page lead, in order and without doubles."""
    return spelling.resolve(base, hrefs)


def key_of(url: str) -> int:
    """The hash of a canonical address, as a signed number of 64 bits."""
    key: int = xxhash.xxh3_64_intdigest(url.encode())
    return key - 0x1_0000_0000_0000_0000 if key & 0x8000_0000_0000_0000 else key


def host_of(url: str) -> str:
    """Whom politeness is about: the name of a canonical address, with its port where that is not the usual one."""
    return url.split("/", 3)[2]


def origin_of(url: str) -> str:
    """Scheme and host of a canonical address: ``https://site.example``."""
    return "/".join(url.split("/", 3)[:3])


def _unescaped(text: str) -> str:
    """Escapes that need not be are not, and the others are in capitals; until nothing changes any more."""
    for _ in range(5):
        unescaped = _ESCAPE.sub(_one_way, text)
        if unescaped == text:
            break
        text = str(URL.parse(unescaped))
    return text


def _one_way(escape: re.Match[str]) -> str:
    character = chr(int(escape[1], 16))
    return character if character in _PLAIN else escape[0].upper()


def _without_dot(host: str) -> str:
    """A name that ends with a dot is the same name."""
    name, colon, port = host.partition(":")
    return host if host.startswith("[") else f"{name.removesuffix('.') or name}{colon}{port}"
