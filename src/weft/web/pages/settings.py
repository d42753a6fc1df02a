"""Settings, secrets, the audit log, and what this installation is made of."""

from __future__ import annotations

import json
from datetime import date
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import urlencode

from msgspec.structs import asdict

from weft.operations import paging, projects, system
from weft.operations.projects import SecretDocument
from weft.web.assets import BUILT
from weft.web.forms import field_errors, translated
from weft.web.rendering import Redirect, WebPage
from weft.web.translations import N_
from weft.web.visit import ApiError, Visit, may, may_somewhere, projects_of


class SettingsTab(NamedTuple):
    """One of the tabs at the top."""

    name: str
    page: str


VALUES = SettingsTab(N_("Values"), "/settings")
KEYS = SettingsTab(N_("Keys"), "/settings/keys")
USERS = SettingsTab(N_("Users"), "/settings/users")
SECRETS = SettingsTab(N_("Secrets"), "/settings/secrets")
AUDIT = SettingsTab(N_("Audit"), "/settings/audit")
ABOUT = SettingsTab(N_("About"), "/settings/about")


def tabs_of(visit: Visit, here: SettingsTab) -> dict[str, Any]:
    """The tabs that somebody may use, and which of them is open, for the template."""
    rules, projects = may(visit.session, "admin"), may_somewhere(visit.session, "admin")
    offered = [(VALUES, rules), (KEYS, True), (USERS, rules), (SECRETS, projects), (AUDIT, projects), (ABOUT, True)]
    return {"tabs": [tab for tab, is_offered in offered if is_offered], "tab": here}


async def values_page(visit: Visit) -> WebPage | Redirect:
    """Every setting with its origin; whoever may not see them is shown their keys."""
    if not may(visit.session, "admin"):
        return Redirect(KEYS.page)
    found = await visit.call(system.list_)
    only = visit.query.get("only", "")
    rows = [each for each in found.items if only != "set" or each.origin != "default"]
    shown = {"settings": rows, "only": only, "changed": sum(each.origin != "default" for each in found.items)}
    return WebPage("settings/values.html", shown | tabs_of(visit, VALUES), found)


SETTINGS_PAGES = {"/settings": {"GET": values_page}}


async def about_page(visit: Visit) -> WebPage:
    found = await visit.call(system.show_about)
    shown = {"about": found, "licences": licences()} | tabs_of(visit, ABOUT)
    return WebPage("settings/about.html", shown, asdict(found) | {"licences": licences()})


@cache
def licences() -> list[dict[str, Any]]:
    """The packages that pages are built from, each with its licence, or else its notice; the build writes them down."""
    file = BUILT / "licences.json"
    found: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
    notices = "\n\n".join(each.read_text(encoding="utf-8") for each in sorted(BUILT.glob("*.LEGAL.txt")))
    return [each | {"text": each["text"] or notices} for each in found]


ABOUT_PAGES = {"/settings/about": {"GET": about_page}}


SECRET_MESSAGES = {
    "set": N_("The secret is set. An earlier value is gone."),
    "deleted": N_("The secret is gone; runs that ask for it fail from now on."),
}


async def secrets_page(visit: Visit) -> WebPage:
    """The names of a project's secrets, and the form that sets one."""
    return await _secrets_page(visit, visit.query.get("project", "").strip(), {"name": ""}, {})


async def change_secret(visit: Visit) -> WebPage | Redirect:
    """Set or delete a secret."""
    project, name = visit.form.get("project", "").strip(), visit.form.get("name", "").strip()
    for field, typed in (("project", project), ("name", name)):
        if not typed:
            return await _secrets_page(
                visit, project, {"name": name}, {field: translated(visit, N_("It must not be empty."))}
            )
    word = "deleted" if visit.form.get("act") == "delete" else "set"
    try:
        if word == "deleted":
            await visit.call(projects.delete_secret, project=project, name=name)
        else:
            await visit.call(
                projects.set_secret, project=project, name=name, body={"value": visit.form.get("value", "")}
            )
    except ApiError as refusal:
        return await _secrets_page(visit, project, {"name": name}, field_errors(refusal, "value", "project", "name"))
    return Redirect("/settings/secrets?" + urlencode({"project": project, "said": word}))


async def _secrets_page(visit: Visit, asked: str, typed: dict[str, str], errors: dict[str, str]) -> WebPage:
    known = await _projects_of_reader(visit)
    project = asked or next(iter(known), "")
    found: paging.Page[SecretDocument] = paging.Page(items=[])
    if project:
        try:
            found = await visit.call(projects.list_secrets, project=project)
        except ApiError as refusal:
            errors = errors or field_errors(refusal, "project", also=frozenset({403, 404}))
    shown: dict[str, Any] = {"secrets": found.items, "project": project, "projects": known, "typed": typed}
    shown["errors"] = errors
    shown["said"] = SECRET_MESSAGES.get(visit.query.get("said", ""), "")
    status = 422 if errors else 200
    return WebPage("settings/secrets.html", shown | tabs_of(visit, SECRETS), found, status=status)


async def _projects_of_reader(visit: Visit) -> list[str]:
    """Those whose secrets the reader may keep."""
    if not may(visit.session, "admin"):
        return projects_of(visit.session, "admin")
    return [each.name for each in (await visit.call(projects.list_)).items]


SECRET_PAGES = {"/settings/secrets": {"GET": secrets_page, "POST": change_secret}}


AUDIT_FILTERS = ("project", "actor", "action", "target", "since", "refused", "after")
REFUSED_CALLS = (("", N_("all calls")), ("true", N_("refused ones")), ("false", N_("the others")))


async def audit_page(visit: Visit) -> WebPage:
    """What was changed, newest first; also what was refused."""
    asked = {name: visit.query.get(name, "").strip() for name in AUDIT_FILTERS}
    query = {name: value for name, value in asked.items() if value}
    errors: dict[str, str] = {}
    if asked["since"]:
        query["since"] = _first_moment(asked["since"])
    found: paging.Page[system.AuditEntryDocument] = paging.Page(items=[])
    try:
        found = await visit.call(system.list_audit, query=query)
    except ApiError as refusal:
        if refusal.problem.status not in (403, 422):
            raise
        errors = {refusal.problem.field or "project": refusal.problem.detail}
    kept = {name: value for name, value in asked.items() if value and name != "after"}
    older = "" if found.next is None else "/settings/audit?" + urlencode({**kept, "after": found.next})
    entries = [asdict(each) | {"laid_out": json.dumps(each.data, indent=2, ensure_ascii=False)} for each in found.items]
    shown: dict[str, Any] = {
        "entries": entries,
        "asked": asked,
        "errors": errors,
        "refused": REFUSED_CALLS,
        "older": older,
    }
    shown["newest"] = "/settings/audit?" + urlencode(kept) if asked["after"] else ""
    shown |= {"may_verify": may(visit.session, "admin"), "is_admin": may_somewhere(visit.session, "admin")}
    return WebPage("settings/audit.html", shown | tabs_of(visit, AUDIT), found, status=422 if errors else 200)


def _first_moment(typed: str) -> str:
    """A day is its first moment; anything else the API decides on."""
    try:
        return f"{date.fromisoformat(typed).isoformat()}T00:00:00Z"
    except ValueError:
        return typed


async def verify_page(visit: Visit) -> WebPage:
    """Follow the chain of digests, and say whether every entry is as it was written."""
    found = await visit.call(system.verify_audit)
    return WebPage("settings/verified.html", {"found": found} | tabs_of(visit, AUDIT), found)


AUDIT_PAGES = {"/settings/audit": {"GET": audit_page}, "/settings/audit/verify": {"GET": verify_page}}

PAGES = SETTINGS_PAGES | ABOUT_PAGES | SECRET_PAGES | AUDIT_PAGES
