"""What comes after what, as a picture and as a list."""

from __future__ import annotations

from typing import Any

from weft.web.faults import faults
from weft.web.inside import Refusal
from weft.web.layers import HEIGHT, WIDTH, drawn
from weft.web.rendering import Live, Page
from weft.web.task_texts import ON
from weft.web.visit import Visit

MOST_DRAWN = 120
"""A picture of more tasks than this helps nobody; the list has more of them."""
MOST_LISTED = 300


async def graph(visit: Visit) -> Page:
    """The tasks that come after others, or before."""
    project, errors = visit.query.get("project", "").strip(), {}
    try:
        found = (await visit.ask("GET", "/v1/tasks/graph", query={"project": project} if project else {})).document
    except Refusal as refusal:
        errors = faults(refusal, "project", also=frozenset({403, 404}))
        found = {"tasks": [], "edges": [], "is_whole": True}
    nodes = {f"{each['project']}/{each['name']}": each for each in found["tasks"]}
    edges = [(each["source"], each["target"]) for each in found["edges"]]
    before: dict[str, list[Any]] = {name: [] for name in nodes}
    for each in found["edges"]:
        before[each["target"]].append((nodes[each["source"]], each["on"]))
    shown = {
        "nodes": nodes,
        "before": before,
        "project": project,
        "errors": errors,
        "is_whole": found["is_whole"] and len(nodes) <= MOST_LISTED,
        "most": MOST_LISTED,
        "on": ON,
        "ons": {(each["source"], each["target"]): each["on"] for each in found["edges"]},
        "drawn": drawn(list(nodes), edges) if 0 < len(nodes) <= MOST_DRAWN else None,
        "box": (WIDTH, HEIGHT),
    }
    live = Live(kinds=("run_", "task_"))
    return Page("tasks/graph.html", shown, found, status=422 if errors else 200, live=live)


PAGES = {"/tasks/graph": {"GET": graph}}
