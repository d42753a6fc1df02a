"""The destinations of datasets: their URLs, fields and batches. Values only, no I/O."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlsplit

from weft.access.secrets import REFERENCE, names_in
from weft.clock import Moment
from weft.errors import Invalid, NotFound
from weft.items.exporters import ExportFormat

SCHEMES = ("file", "postgresql", "s3")
LONGEST_URL = 2_000
MOST_FIELDS = 200
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 5.0, 3600.0
NUMBER_SUFFIX = ":number"
"""Ends a field that becomes a column of numbers."""

OWN_COLUMNS = ("at", "data")
QUERY = {
    "file": frozenset[str](),
    "s3": frozenset({"endpoint", "region"}),
    "postgresql": frozenset({"rows", "sslmode"}),
}
ROW_MODES = ("records", "items")
"""What a table has a row for; the first unless its URL says otherwise."""

_HOST = re.compile(r"[a-z0-9._:-]{1,253}", re.ASCII)
"""Neither a folder with a socket in it, where the name of a process is its password, nor several."""
_SEGMENT = re.compile(r"[A-Za-z0-9._-]{1,200}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where the items of a dataset are delivered to."""

    id: int
    dataset_id: int
    project: str
    dataset: str
    url: str
    format: ExportFormat
    fields: tuple[str, ...]
    problem: str | None
    """Why the newest try failed."""
    failures: int
    """Tries that failed, since the last that did not."""
    next_at: Moment
    delivered: int
    delivered_at: Moment | None
    created_at: Moment
    created_by: str

    @property
    def state(self) -> str:
        return "failing" if self.failures else "active"

    @property
    def is_table(self) -> bool:
        return self.url.startswith("postgresql:")

    @property
    def columns(self) -> dict[str, bool]:
        """The fields that a table has as columns, and whether each is of numbers."""
        return {each.removesuffix(NUMBER_SUFFIX): each.endswith(NUMBER_SUFFIX) for each in self.fields}


@dataclass(frozen=True, slots=True)
class DeliveryBatch:
    """Items of one attempt that follow each other, and go together."""

    run_id: int
    attempt: int
    first: int
    last: int

    def file_name(self, format: ExportFormat) -> str:
        """The same for the same items, so that what is sent again replaces itself."""
        return f"run-{self.run_id}/{self.attempt}-{self.first:012}-{self.last:012}.{format}"


def checked_url(url: str) -> str:
    """An address that items may be sent to. A password in it must be a secret of the project.

    Which hosts may be reached is not decided here: an admin of a project can name an address in the network of the
    control processes, as for a webhook.
    """
    try:
        parts = urlsplit(url)
        known = parts.scheme in SCHEMES and (parts.scheme == "file" or bool(parts.hostname)) and parts.port != 0
    except ValueError:
        known = False
    if not known or len(url) > LONGEST_URL or any(ord(character) <= 32 for character in url):
        raise Invalid("url", _shown(url), f"it must begin with {', '.join(f'{each}:' for each in SCHEMES)}")
    query = parse_qsl(parts.query, keep_blank_values=True)
    if parts.fragment or {name for name, _ in query} - QUERY[parts.scheme]:
        allowed = ", ".join(sorted(QUERY[parts.scheme])) or "nothing"
        raise Invalid("url", _shown(url), f"after ? it may say {allowed}")
    if any(name == "rows" and value not in ROW_MODES for name, value in query):
        raise Invalid("url", _shown(url), f"rows must be {' or '.join(ROW_MODES)}")
    _check_secret(url, parts.scheme, parts.username, parts.password)
    if parts.scheme == "file":
        _check_folder(url)
    elif not _HOST.fullmatch(parts.hostname or ""):
        raise Invalid("url", _shown(url), "its host must be a name or an address, and only one")
    return url


def checked_fields(fields: Sequence[str], url: str) -> tuple[str, ...]:
    is_table = url.startswith("postgresql:")
    for field in fields:
        name = field.removesuffix(NUMBER_SUFFIX) if is_table else field
        if (
            not name
            or len(name.encode()) > 63
            or "\0" in name
            or (is_table and (name.startswith("weft_") or name in OWN_COLUMNS))
        ):
            raise Invalid("fields", field, "each must be the name of a field, of at most 63 bytes, and none of weft's")
    if len(fields) > MOST_FIELDS or len(set(fields)) != len(fields):
        raise Invalid("fields", ",".join(fields)[:200], f"they must be at most {MOST_FIELDS}, each named once")
    return tuple(fields)


def check_secrets(url: str, project: str, known: Collection[str]) -> None:
    """Refuse a URL that names a secret which the project does not have."""
    for name in names_in(url):
        if name not in known:
            how = f"set it first, on the settings page of secrets or with `weft secrets set {name}`"
            raise Invalid("url", _shown(url), f"project {project} has no secret {name}: {how}")


def opened_url(url: str, secrets: Mapping[str, str]) -> str:
    """The address with its secrets filled in."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in secrets:
            raise NotFound("secret", found[1])
        return quote(secrets[found[1]], safe="")

    return REFERENCE.sub(value, url)


def safe_join(root: str, url: str) -> str:
    """The URL of a folder below ``root``; a link that leads out of it is refused."""
    top = os.path.realpath(root)
    folder = os.path.realpath(Path(top, url.removeprefix("file:")))
    if os.path.commonpath([top, folder]) != top:
        raise Invalid("url", url, "it must be a folder below destinations_dir")
    return f"file:{folder}"


def pause_seconds(failures: int, share: float) -> float:
    """How long to wait after so many failures; ``share``, from 0 to 1, spreads those that failed together."""
    longest = min(FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 1, 20), LONGEST_PAUSE_SECONDS)
    return longest * (0.75 + share / 4)


def _check_secret(url: str, scheme: str, username: str | None, password: str | None) -> None:
    """Without credentials of its own it would be sent to with those of whoever runs weft."""
    if password is not None and not REFERENCE.fullmatch(password):
        raise Invalid("url", _shown(url), "a password in it must be a secret of the project: {{secret:NAME}}")
    if scheme != "file" and not (username and password):
        shape = f"{scheme}://NAME:{{{{secret:NAME}}}}@{'bucket' if scheme == 's3' else 'host'}/…"
        raise Invalid("url", _shown(url), f"it must have credentials of its own: {shape}")
    if len(REFERENCE.findall(url)) > (password is not None):
        raise Invalid("url", _shown(url), "only the password may be a secret")


def _check_folder(url: str) -> None:
    segments = url.removeprefix("file:").split("/")
    if not all(_SEGMENT.fullmatch(each) and each.strip(".") for each in segments):
        allowed = "it must be file: and a folder below destinations_dir, of letters, digits, '.', '_', '-' and '/'"
        raise Invalid("url", _shown(url), allowed)


def _shown(url: str) -> str:
    before, at, after = url.rpartition("@")
    return f"{before.partition(':')[0]}://…@{after}"[:200] if at else url[:200]
