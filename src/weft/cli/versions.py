"""``weft versions`` and ``weft spiders``: the code of projects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from weft.cli.options import Command, Group, options_of
from weft.cli.output import ago, answer, table
from weft.cli.session import ask

if TYPE_CHECKING:
    from weft.projects.model import Argument, Spider, Version

app = typer.Typer(cls=Group, no_args_is_help=True, add_completion=False, help="The code of projects.")

Name = Annotated[str, typer.Argument(metavar="VERSION", help="The name of a version.")]
HEADINGS = ("VERSION", "CURRENT", "SPIDERS", "FORMAT", "SIZE", "DEPLOYED", "BY")
SPIDER_HEADINGS = ("SPIDER", "ARGUMENTS", "ABOUT")


@app.command("list", cls=Command)
def list_(context: typer.Context) -> None:
    """List the versions of a project, the newest by name first."""
    project = _project(context)
    found = ask(context, lambda weft: weft.projects.versions(project))
    empty = f"project {project} has no version; `weft deploy` makes one"
    answer(context, [document(each) for each in found], lambda: table(HEADINGS, map(_row, found), empty=empty))


@app.command(cls=Command)
def use(context: typer.Context, version: Name) -> None:
    """Make a version the current one: runs that are queued from now on execute it."""
    project = _project(context)
    _tell(context, ask(context, lambda weft: weft.projects.use(project, version), changes=True))


@app.command(cls=Command)
def rollback(context: typer.Context) -> None:
    """Make the version current that was deployed before the current one."""
    project = _project(context)
    _tell(context, ask(context, lambda weft: weft.projects.rollback(project), changes=True))


@app.command(cls=Command)
def delete(
    context: typer.Context,
    version: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a version that is not the current one, or the last; refused while a run that needs it has not ended."""
    from weft.cli.changes import confirm

    project = _project(context)
    confirm(context, f"delete version {version} of project {project}?", yes=yes)
    ask(context, lambda weft: weft.projects.delete(project, version), changes=True)
    told = {"project": project, "version": version}
    answer(context, told, lambda: f"version {version} of project {project} is deleted")


def spiders(
    context: typer.Context,
    project: Annotated[str | None, typer.Argument(metavar="PROJECT", help="The name of a project.")] = None,
    version: Annotated[
        str | None, typer.Option("--version", metavar="NAME", help="A version; left out: the current one.")
    ] = None,
) -> None:
    """List the spiders of a project, or of all, and the arguments that they take."""
    named = project or options_of(context).project
    if named is None and version is None:
        _list_all(context)
        return
    found = ask(context, lambda weft: weft.projects.spiders(named or "default", version))
    answer(context, [msgspec.to_builtins(each) for each in found], lambda: spiders_text(found))


def _list_all(context: Any) -> None:
    found = ask(context, lambda weft: weft.projects.all_spiders())
    placed = [(project, each) for project, spiders in found.items() for each in spiders]
    documents = [{"project": project, **msgspec.to_builtins(each)} for project, each in placed]
    rows = [(project, *_spider_row(each)) for project, each in placed]
    empty = "there are no spiders; `weft deploy` brings some"
    answer(context, documents, lambda: table(("PROJECT", *SPIDER_HEADINGS), rows, empty=empty))


def spiders_text(found: Iterable[Spider]) -> str:
    return table(SPIDER_HEADINGS, map(_spider_row, found), empty="there are no spiders")


def _spider_row(spider: Spider) -> tuple[object, ...]:
    return spider.name, _arguments(spider), spider.doc.partition("\n")[0]


def document(version: Version) -> Any:
    from weft.documents.versions import version_document

    return msgspec.to_builtins(version_document(version))


def _arguments(spider: Spider) -> str:
    more = ["…"] if spider.takes_more else []
    return ", ".join([*(_argument(each) for each in spider.arguments), *more])


def _argument(argument: Argument) -> str:
    typed = f": {argument.annotation}" if argument.annotation else ""
    return f"{argument.name}{typed}" if argument.default is None else f"{argument.name}{typed} = {argument.default}"


def _row(version: Version) -> tuple[object, ...]:
    current = "yes" if version.is_current else ""
    count, size = len(version.spiders), f"{version.size / 1000:.1f} kB"
    return version.version, current, count, version.format, size, ago(version.deployed_at), version.deployed_by


def _tell(context: Any, version: Version) -> None:
    answer(context, document(version), lambda: f"version {version.version} of project {version.project} is current")


def _project(context: Any) -> str:
    return options_of(context).project or "default"
