"""Settings: how this weft is set up, and where each value comes from."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import msgspec

from weft.access.model import Role
from weft.api.call import Call
from weft.api.operation import Operations
from weft.api.paging import Page
from weft.config import Config
from weft.errors import Misconfigured
from weft.settings import Setting, load

operations = Operations("settings")

EXAMPLE = {"name": "port", "value": 6800, "origin": "default", "doc": "The port that weft listens on; 0 for none."}


class SettingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of the process that answers."""

    name: str
    value: str | float | bool
    """Secrets are dots."""
    origin: str
    """default, a file, a variable of the environment, or the command line."""
    doc: str


@operations.get("/settings", needs=Role.ADMIN, answer=Page[SettingDocument], example={"items": [EXAMPLE], "next": None})
async def list_(call: Call) -> Page[SettingDocument]:
    """List every setting and where its value comes from; secrets as dots."""
    call.check_everywhere()
    return Page(items=[_document(each) for each in explained(call.app.config)])


def explained(config: Config) -> list[Setting]:
    """Every setting with its origin; what neither file nor environment says was said by whoever started weft."""
    try:
        found = {each.name: each for each in load().settings}
    except Misconfigured:
        found = {}
    return [_setting(one, config, found.get(one.name)) for one in fields(Config)]


def _setting(one: Any, config: Config, found: Setting | None) -> Setting:
    value = getattr(config, one.name)
    value = value or getattr(config, f"{one.name}_url", value)
    if found is not None and found.value == value:
        return found
    return Setting(one.name, value, "command line", one.metadata["doc"], one.metadata.get("hidden", False))


def _document(setting: Setting) -> SettingDocument:
    value = setting.shown if isinstance(setting.value, str) else setting.value
    return SettingDocument(name=setting.name, value=value, origin=setting.origin, doc=setting.doc)
