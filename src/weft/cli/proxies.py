"""``weft proxies``: which proxies a project may use, where its sites stand, and what that costs."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from weft.cli.options import WeftCommand, WeftGroup, options_of
from weft.cli.output import ago, answer, table
from weft.cli.session import ask
from weft.errors import Invalid
from weft.untrusted_files import LARGEST_FILE, read_named

if TYPE_CHECKING:
    from weft.proxies.store import StoredPlan

app = typer.Typer(cls=WeftGroup, no_args_is_help=True, add_completion=False, help="Manage proxy plans.")

Name = Annotated[str, typer.Argument(metavar="PLAN", help="The name of a proxy plan.")]
PLAN_HEADINGS = ("PLAN", "SITES", "EXITS", "BUDGET A DAY", "CHANGED", "BY")
SITE_HEADINGS = ("SITE", "WAY", "NEXT PROBE", "GOOD PROBES", "CHANGED")
SPENT_HEADINGS = ("REQUESTS", "SENT", "RECEIVED", "COST", "ENDED")


@app.command("list", cls=WeftCommand)
def list_(context: typer.Context) -> None:
    """List the proxy plans of a project."""
    project = _project(context)
    found = ask(context, lambda weft: weft.proxies.all(project))
    empty = f"project {project} has no proxy plan; `weft proxies set` makes one"
    answer(context, [_document(each) for each in found], lambda: table(PLAN_HEADINGS, map(_row, found), empty=empty))


@app.command(cls=WeftCommand)
def show(context: typer.Context, name: Name) -> None:
    """Show a proxy plan, the sites that use a proxy, and those that blocked requests lately."""
    from weft.operations.proxies import proxy_site_document

    project = _project(context)
    kept = ask(context, lambda weft: weft.proxies.get(project, name))
    found = [
        proxy_site_document(kept.plan, *each) for each in ask(context, lambda weft: weft.proxies.sites(project, name))
    ]

    def text() -> str:
        rows = [(each.site, each.way, each.probe_at or "", each.good_probes, each.updated_at or "") for each in found]
        return table(SITE_HEADINGS, rows, empty=f"every site of {name} is asked directly")

    answer(context, {"plan": _document(kept), "sites": found}, text)


@app.command("set", cls=WeftCommand)
def set_(
    context: typer.Context,
    name: Name,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The plan in TOML or JSON; - is the standard input.")],
) -> None:
    """Create or replace a proxy plan from a file; the state of its sites and its costs stay."""
    from weft.cli.auditing import local_user

    project, document, by = _project(context), _read(file), f"local:{local_user()}"
    kept = ask(context, lambda weft: weft.proxies.set(project, name, document, by=by), changes=True)
    count = len(kept.plan.exits)
    text = f"proxy plan {name} of project {project} is set: {count} exit{'' if count == 1 else 's'}"
    answer(context, _document(kept), lambda: text)


@app.command(cls=WeftCommand)
def delete(
    context: typer.Context,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a proxy plan and its costs. Tasks that name it fail from now on."""
    from weft.cli.output import confirm

    project = _project(context)
    confirm(context, f"delete proxy plan {name} of project {project}?", yes=yes)
    ask(context, lambda weft: weft.proxies.delete(project, name), changes=True)
    answer(context, {"project": project, "name": name}, lambda: f"proxy plan {name} of project {project} is deleted")


@app.command(cls=WeftCommand)
def spent(
    context: typer.Context,
    name: Name,
    days: Annotated[int, typer.Option("--days", metavar="N", min=1, help="How many days back, with today.")] = 30,
    by: Annotated[
        Literal["day", "site", "exit"], typer.Option("--by", metavar="WHAT", help="Group by day, site or exit.")
    ] = "day",
) -> None:
    """Print the costs of a proxy plan, the highest first."""
    from weft.operations.proxies import proxy_spend_document

    project = _project(context)
    rows = ask(context, lambda weft: weft.proxies.spent(project, name, days, by))
    found = [proxy_spend_document(each) for each in rows]

    def text() -> str:
        shown = [
            (
                getattr(each, by) or "direct",
                each.requests,
                each.sent,
                each.received,
                f"{each.cost:.4f}",
                ", ".join(f"{verdict} {count}" for verdict, count in each.verdicts.items()),
            )
            for each in found
        ]
        return table((by.upper(), *SPENT_HEADINGS), shown, empty=f"nothing went through the proxies of {name}")

    answer(context, found, text)


def _project(context: Any) -> str:
    return options_of(context).project or "default"


def _read(file: str) -> dict[str, Any]:
    import msgspec

    from weft import strict_json

    data = sys.stdin.buffer.read() if file == "-" else read_named(Path(file), LARGEST_FILE)
    try:
        document = strict_json.decode(data) if data.lstrip().startswith(b"{") else tomllib.loads(data.decode())
    except (msgspec.DecodeError, tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise Invalid("the file of the proxy plan", file, f"it must be TOML or JSON: {problem}") from None
    if not isinstance(document, dict):
        raise Invalid("the file of the proxy plan", file, "it must hold a table")
    return document


def _row(kept: StoredPlan) -> tuple[object, ...]:
    plan = kept.plan
    sites = ", ".join(plan.sites[:3]) + (", …" if len(plan.sites) > 3 else "")
    exits = ", ".join(f"{each.name} ({each.tier})" for each in plan.exits[:5])
    return (kept.name, sites, exits, plan.budget.day_stop or "", ago(kept.updated_at), kept.updated_by)


def _document(kept: StoredPlan) -> Any:
    from weft.operations.proxies import proxy_plan_document

    return proxy_plan_document(kept)
