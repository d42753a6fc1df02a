"""Settings: how this weft is set up, and the tabs of all that is set up in it."""

from __future__ import annotations

from typing import Any, NamedTuple

from weft.web.rendering import Onward, Page
from weft.web.rights import may, may_somewhere
from weft.web.visit import Visit
from weft.web.words import N_


class Tab(NamedTuple):
    """One of the tabs at the top."""

    name: str
    page: str


VALUES = Tab(N_("Values"), "/settings")
KEYS = Tab(N_("Keys"), "/settings/keys")
USERS = Tab(N_("Users"), "/settings/users")
SECRETS = Tab(N_("Secrets"), "/settings/secrets")
AUDIT = Tab(N_("Audit"), "/settings/audit")
ABOUT = Tab(N_("About"), "/settings/about")


def tabs_of(visit: Visit, here: Tab) -> dict[str, Any]:
    """The tabs that somebody may use, and which of them is open, for the template."""
    rules, projects = may(visit.session, "admin"), may_somewhere(visit.session, "admin")
    offered = [(VALUES, rules), (KEYS, True), (USERS, rules), (SECRETS, projects), (AUDIT, projects), (ABOUT, True)]
    return {"tabs": [tab for tab, is_offered in offered if is_offered], "tab": here}


async def listing(visit: Visit) -> Page | Onward:
    """Every setting with its origin; whoever may not see them is shown their keys."""
    if not may(visit.session, "admin"):
        return Onward(KEYS.page)
    found = (await visit.ask("GET", "/v1/settings")).document
    only = visit.query.get("only", "")
    rows = [each for each in found["items"] if only != "set" or each["origin"] != "default"]
    shown = {"settings": rows, "only": only, "changed": sum(each["origin"] != "default" for each in found["items"])}
    return Page("settings/values.html", shown | tabs_of(visit, VALUES), found)


PAGES = {"/settings": {"GET": listing}}
