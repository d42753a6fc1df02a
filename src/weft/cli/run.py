"""``weft run SPIDER``: a run of a deployed spider."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.options import number, options_of, whole
from weft.cli.output import note
from weft.cli.submit import Follow, Key, Priority, Wait, new_run, queue_and_stay
from weft.errors import Invalid, NotFound

if TYPE_CHECKING:
    from weft.app import App
    from weft.runs.model import Submitted


def run(
    context: typer.Context,
    spider: Annotated[str, typer.Argument(metavar="SPIDER", help="The spider, as `weft spiders` lists it.")],
    arg: Annotated[
        list[str] | None, typer.Option("-a", "--arg", metavar="NAME=VALUE", help="An argument of the spider.")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("-s", "--set", metavar="NAME=VALUE", help="A setting of Scrapy for this run.")
    ] = None,
    version: Annotated[
        str | None, typer.Option(metavar="VERSION", help="The version of the code; the current one unless told.")
    ] = None,
    label: Annotated[list[str] | None, typer.Option(metavar="LABEL", help="A label that its worker must have.")] = None,
    isolation: Annotated[str | None, typer.Option(metavar="LEVEL", help="L0, L1 or L2; L1 unless told.")] = None,
    limit: Annotated[
        list[str] | None, typer.Option(metavar="NAME=N", help="What it may use: memory_bytes=500000000, items=100, …")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(metavar="NAME", help="Where its items go; the spider's name unless told.")
    ] = None,
    resumable: Annotated[bool, typer.Option("--resumable", help="Keep its place, so that it can be paused.")] = False,
    spread: Annotated[
        int,
        typer.Option(
            metavar="N", parser=whole("--spread", 0, 1000), help="In N runs that share a frontier; 0: one without."
        ),
    ] = 0,
    timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", parser=number("--timeout", 0, 31_536_000), help="Stop it after so long; 0 for never."
        ),
    ] = 0.0,
    retries: Annotated[
        int, typer.Option(metavar="N", parser=whole("--retries", 0, 1000), help="How often it is tried again.")
    ] = 0,
    priority: Priority = None,
    key: Key = None,
    wait: Wait = False,
    follow: Follow = False,
) -> None:
    """Run a spider of a project that was deployed."""
    spec: dict[str, Any] = {"spider": spider, "args": pairs("-a", arg), "settings": pairs("-s", setting)}
    chosen = {"version": version, "isolation": isolation, "dataset": dataset, "resumable": resumable or None}
    spec |= {name: value for name, value in chosen.items() if value is not None}
    spec |= {"limits": _limits(limit)} if limit else {}
    spec |= {"frontier": True} if spread else {}
    definition = {"name": spider, "kind": "spider", "spec": spec, "priority": priority or 0}
    definition |= {"labels": label or [], "timeout_seconds": timeout, "retry": {"count": retries}}

    async def queue(weft: App) -> Submitted:
        definition["project"] = options_of(context).project or await _project_of(weft, spider)
        keys = [key and (f"{key}-{number}" if number else key) for number in range(max(1, spread))]
        first, *others = await weft.runs.submit([new_run(definition, each) for each in keys])
        if others:
            note(f"it shares its frontier with run {', '.join(str(other.run_id) for other in others)}")
        return first

    queue_and_stay(context, queue, wait=wait, follow=follow)


async def _project_of(weft: App, spider: str) -> str:
    """The project whose current code has the spider, where there is exactly one."""
    having = await weft.projects.having(spider)
    if not having:
        raise NotFound("spider", f"{spider} in any project; `weft spiders` lists those that there are")
    if len(having) > 1:
        raise Invalid("--project", "nothing", f"several projects have the spider {spider}: {', '.join(having)}")
    return having[0]


def _limits(given: list[str] | None) -> dict[str, int]:
    limits = pairs("--limit", given)
    return {name: whole(f"--limit {name}", 1, 2**62)(value) for name, value in limits.items()}


def pairs(option: str, given: list[str] | None) -> dict[str, str]:
    pairs = [(each, *each.partition("=")) for each in given or ()]
    for each, name, equals, _ in pairs:
        if not equals or not name:
            raise Invalid(option, each, "it must be NAME=VALUE")
    return {name: value for _, name, _, value in pairs}
