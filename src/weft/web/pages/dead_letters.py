"""Dead letters: the list of them, and one with its reason, what is written in it, and what can be done."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from weft.operations import dead_letters, paging
from weft.web.rendering import LiveRefresh, Redirect, WebPage
from weft.web.translations import N_
from weft.web.visit import ApiError, Visit, may_somewhere

STATES = ("dead", "resubmitted", "dropped", N_("all"))
LARGEST_TYPED = 200_000
"""Characters of a body that a browser is given to edit; larger ones are edited with the command."""
SHOWN = 20_000
"""Characters that are shown of a body that is larger."""
MESSAGES = {
    "saved": N_("The dead letter is saved. What was written in it when it came is kept."),
    "refused": N_("It was refused again, for the reason below."),
    "dropped": N_("It waits for nobody any more."),
}
"""What a page says after something was done, by the word in its address."""


async def listing(visit: Visit) -> WebPage:
    """The dead letters, newest first: those that are dead unless others are asked for."""
    asked = {name: visit.query.get(name, "").strip() for name in ("state", "project", "source", "after")}
    asked["state"] = asked["state"] or "dead"
    query = {name: value for name, value in asked.items() if value and value != "all"}
    errors = {}
    try:
        found = await visit.call(dead_letters.list_, query=query)
    except ApiError as refusal:
        if refusal.problem.status not in (403, 422):
            raise
        found, errors = paging.Page(items=[]), {refusal.problem.field or "project": refusal.problem.detail}
    older = "" if found.next is None else "/dead-letters?" + urlencode({**asked, "after": found.next})
    newest = "/dead-letters?" + urlencode({**asked, "after": ""}) if asked["after"] else ""
    shown: dict[str, Any] = {"letters": found.items, "asked": asked, "states": STATES, "errors": errors}
    shown |= {"older": older, "newest": newest, "is_operator": may_somewhere(visit.session, "operator")}
    live = None if newest or errors else LiveRefresh(kinds=("letter_",))
    return WebPage("dead_letters/list.html", shown, found, status=422 if errors else 200, live=live)


async def detail(visit: Visit) -> WebPage:
    """One dead letter, as it is now."""
    return await _detail(visit, said=MESSAGES.get(visit.query.get("said", ""), ""))


async def act(visit: Visit) -> WebPage | Redirect:
    """Save what was typed, and resubmit or drop the dead letter where that was asked for; then show it."""
    verb, dead_letter_id = visit.form.get("act", "save"), visit.path("dead_letter_id")
    address = "/dead-letters/" + quote(dead_letter_id, safe="")
    seen = {"if-match": f'"{visit.form.get("revision", "")}"'}
    try:
        if verb == "drop":
            await visit.call(dead_letters.drop, dead_letter_id=dead_letter_id, sent=seen)
            return Redirect(f"{address}?said=dropped")
        revision = await _saved(visit, seen)
        if verb != "resubmit":
            return Redirect(f"{address}?said=saved")
        done = await visit.call(dead_letters.resubmit, dead_letter_id=dead_letter_id, sent={"if-match": revision})
    except ApiError as refusal:
        if refusal.problem.status not in (409, 412, 422, 429):
            raise
        return await _detail(visit, refusal=refusal)
    return Redirect(address if done.refused is None else f"{address}?said=refused")


async def _saved(visit: Visit, seen: dict[str, str]) -> str:
    """Write down what was typed, if that is anything else than what is there; the ETag of the dead letter then."""
    typed, encoding = visit.form.get("body"), visit.form.get("encoding", "utf-8")
    dead_letter = await visit.call(dead_letters.show, dead_letter_id=visit.path("dead_letter_id"))
    if typed is None or (typed, encoding) == (dead_letter.body.replace("\r\n", "\n"), dead_letter.body_encoding):
        return seen["if-match"]
    body = {"body": typed, "encoding": encoding}
    saved = await visit.call(dead_letters.edit, dead_letter_id=visit.path("dead_letter_id"), sent=seen, body=body)
    return f'"{saved.revision}"'


async def _detail(visit: Visit, *, said: str = "", refusal: ApiError | None = None) -> WebPage:
    dead_letter = await visit.call(dead_letters.show, dead_letter_id=visit.path("dead_letter_id"))
    typed = visit.form.get("body", dead_letter.body)
    errors = {} if refusal is None else {refusal.problem.field or "letter": refusal.problem.detail}
    is_large = max(len(dead_letter.body), len(dead_letter.original or "")) > LARGEST_TYPED
    shown = {"letter": dead_letter, "typed": typed, "said": said, "errors": errors, "is_large": is_large, "most": SHOWN}
    return WebPage(
        "dead_letters/detail.html", shown, dead_letter, status=200 if refusal is None else refusal.problem.status
    )


PAGES = {"/dead-letters": {"GET": listing}, "/dead-letters/{dead_letter_id}": {"GET": detail, "POST": act}}
