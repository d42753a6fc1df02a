"""A request of one of Scrapyd's clients."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from weft.access.model import Caller, Role
from weft.api.scrapyd import answers
from weft.api.scrapyd.answers import Complaint, Hidden
from weft.app import App

Values = dict[bytes, list[bytes]]
"""Parameters as they were sent: names and texts need not be UTF-8."""


@dataclass(slots=True)
class Asked:
    """What was asked for, and by whom. ``path`` has no double slashes."""

    app: App
    caller: Caller
    method: str
    path: str
    request: Request
    node_name: str
    values: Values = field(default_factory=dict)
    egg: Path | None = None
    """The uploaded file, which is gone once the request is answered."""
    project: str = ""
    """Where the caller's role was last asked for."""

    def text(self, name: str) -> str:
        """A parameter that must be there. Each is taken once; of several with one name the first counts."""
        found = self.optional(name)
        if found is None:
            raise Complaint(f"'{name}' parameter is required")
        return found

    def optional(self, name: str) -> str | None:
        found = self.values.pop(name.encode(), None)
        return None if not found else _text(name, found[0])

    def number(self, name: str) -> float:
        """A parameter that is a number; 0 where it is not there."""
        found = self.values.pop(name.encode(), [b"0"])[0]
        try:
            value = float(found)
        except ValueError as problem:
            raise Complaint(f"{name} is invalid: {problem}") from problem
        if math.isnan(value):
            raise Complaint(f"{name} is invalid: it is not a number")
        return value

    def texts(self, name: str) -> list[str]:
        """Every value of a parameter that may be repeated."""
        return [_text(name, each) for each in self.values.pop(name.encode(), [])]

    def rest(self) -> dict[str, str]:
        """The parameters that nobody has taken."""
        try:
            named = {name.decode(): values[0] for name, values in self.values.items()}
            return {name: _without_nul(name, value.decode()) for name, value in named.items()}
        except UnicodeDecodeError as problem:
            raise Complaint(f"UnicodeDecodeError: {problem}") from problem

    def check(self, needed: Role, project: str, missing: str = "") -> None:
        """Refuse a caller whose role is too low; a project that they may not see does not exist for them."""
        self.project = project
        if self.caller.role_in(project) is None:
            raise Hidden(missing or f"project '{project}' not found")
        self.caller.check(needed, project)

    def visible(self, project: str | None = None) -> frozenset[str] | None:
        """The projects whose things the caller may see, or the one that was asked for; None for all."""
        if project is not None:
            return frozenset({project})
        return self.caller.projects(Role.VIEWER)

    def ok(self, **data: Any) -> Response:
        return answers.ok(self.node_name, **data)

    @property
    def action(self) -> str:
        """What the audit log calls it: ``scrapyd.cancel``."""
        return f"scrapyd.{self.path.strip('/').removesuffix('.json')}"

    @property
    def prefix(self) -> str:
        """What a proxy has taken from the beginning of the address."""
        return self.request.headers.get("x-forwarded-prefix", "").rstrip("/")


def _text(name: str, value: bytes) -> str:
    try:
        return _without_nul(name, value.decode())
    except UnicodeDecodeError as problem:
        raise Complaint(f"{name} is invalid: {problem}") from problem


def _without_nul(name: str, value: str) -> str:
    """No database keeps this character."""
    if "\0" in name or "\0" in value:
        raise Complaint(f"{name} is invalid: it may not have the character NUL".replace("\0", ""))
    return value
