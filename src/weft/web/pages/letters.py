"""Dead letters: the list of them, and one with its reason, what is written in it, and what can be done."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from weft.web.inside import Refusal
from weft.web.rendering import Live, Onward, Page
from weft.web.rights import may_somewhere
from weft.web.visit import Visit
from weft.web.words import N_

STATES = ("dead", "resubmitted", "dropped", N_("all"))
LARGEST_TYPED = 200_000
"""Characters of a body that a browser is given to edit; larger ones are edited with the command."""
SHOWN = 20_000
"""Characters that are shown of a body that is larger."""
SAID = {
    "saved": N_("The letter is saved. What was written in it when it came is kept."),
    "refused": N_("It was refused again, for the reason below."),
    "dropped": N_("It waits for nobody any more."),
}
"""What a page says after something was done, by the word in its address."""


async def listing(visit: Visit) -> Page:
    """The letters, newest first: those that are dead unless others are asked for."""
    asked = {name: visit.query.get(name, "").strip() for name in ("state", "project", "source", "after")}
    asked["state"] = asked["state"] or "dead"
    query = {name: value for name, value in asked.items() if value and value != "all"}
    errors = {}
    try:
        found = (await visit.ask("GET", "/v1/letters", query=query)).document
    except Refusal as refusal:
        if refusal.problem.status not in (403, 422):
            raise
        found, errors = {"items": [], "next": None}, {refusal.problem.field or "project": refusal.problem.detail}
    older = "" if found["next"] is None else "/letters?" + urlencode({**asked, "after": found["next"]})
    newest = "/letters?" + urlencode({**asked, "after": ""}) if asked["after"] else ""
    shown = {"letters": found["items"], "asked": asked, "states": STATES, "errors": errors}
    shown |= {"older": older, "newest": newest, "is_operator": may_somewhere(visit.session, "operator")}
    live = None if newest or errors else Live(kinds=("letter_",))
    return Page("letters/list.html", shown, found, status=422 if errors else 200, live=live)


async def detail(visit: Visit) -> Page:
    """One letter, as it is now."""
    return await _detail(visit, said=SAID.get(visit.query.get("said", ""), ""))


async def act(visit: Visit) -> Page | Onward:
    """Save what was typed, and resubmit or drop the letter where that was asked for; then show it."""
    verb, address = visit.form.get("act", "save"), _address(visit)
    seen = {"if-match": f'"{visit.form.get("revision", "")}"'}
    try:
        if verb == "drop":
            await visit.ask("DELETE", f"/v1{address}", headers=seen)
            return Onward(f"{address}?said=dropped")
        revision = await _saved(visit, seen)
        if verb != "resubmit":
            return Onward(f"{address}?said=saved")
        done = (await visit.ask("POST", f"/v1{address}/resubmit", headers={"if-match": revision})).document
    except Refusal as refusal:
        if refusal.problem.status not in (409, 412, 422, 429):
            raise
        return await _detail(visit, refusal=refusal)
    return Onward(address if done["refused"] is None else f"{address}?said=refused")


async def _saved(visit: Visit, seen: dict[str, str]) -> str:
    """Write down what was typed, if that is anything else than what is there; the ETag of the letter then."""
    typed, encoding = visit.form.get("body"), visit.form.get("encoding", "utf-8")
    letter = (await visit.ask("GET", f"/v1{_address(visit)}")).document
    if typed is None or (typed, encoding) == (letter["body"].replace("\r\n", "\n"), letter["body_encoding"]):
        return seen["if-match"]
    body = {"body": typed, "encoding": encoding}
    saved = await visit.ask("PATCH", f"/v1{_address(visit)}", headers=seen, body=body)
    return saved.headers["etag"]


async def _detail(visit: Visit, *, said: str = "", refusal: Refusal | None = None) -> Page:
    letter = (await visit.ask("GET", f"/v1{_address(visit)}")).document
    typed = visit.form.get("body", letter["body"])
    errors = {} if refusal is None else {refusal.problem.field or "letter": refusal.problem.detail}
    is_large = max(len(letter["body"]), len(letter["original"] or "")) > LARGEST_TYPED
    shown = {"letter": letter, "typed": typed, "said": said, "errors": errors, "is_large": is_large, "most": SHOWN}
    return Page("letters/detail.html", shown, letter, status=200 if refusal is None else refusal.problem.status)


def _address(visit: Visit) -> str:
    return "/letters/" + quote(visit.path("letter_id"), safe="")


PAGES = {"/letters": {"GET": listing}, "/letters/{letter_id}": {"GET": detail, "POST": act}}
