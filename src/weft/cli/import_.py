"""``weft import``: what another system has, taken over."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.options import WeftCommand, WeftGroup, options_of
from weft.cli.output import TerminalLogText, answer, note, table
from weft.cli.session import ask, on_this_machine, settings
from weft.errors import NoWeft

if TYPE_CHECKING:
    from weft.app import App
    from weft.scrapyd.conf import OptionReport, ScrapydConf
    from weft.scrapyd.model import ImportReport

ONLY_HERE = "an import reads files of this machine, so it works on the weft of this machine alone"
FOLDERS = ("eggs_dir", "dbs_dir", "logs_dir", "items_dir")

app = typer.Typer(
    cls=WeftGroup, no_args_is_help=True, add_completion=False, help="Import jobs, code and items from another system."
)


@app.callback()
def nouns() -> None:
    """Import jobs, code and items from another system."""


@app.command(cls=WeftCommand)
def scrapyd(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="The folder in which Scrapyd was started; it is only read.")
    ],
    conf: Annotated[
        Path | None, typer.Option("--conf", metavar="FILE", help="Its scrapyd.conf; left out: those it would read.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
) -> None:
    """Import eggs, jobs, logs and items from Scrapyd; repeated, it imports only what is new."""
    from weft.scrapyd.conf import explain_options, read_conf

    read = read_conf(folder, conf)
    try:
        report = _taken(context, read, dry_run=dry_run)
    except KeyboardInterrupt:
        note("stopped; what was taken stays, and the same command takes the rest")
        raise typer.Exit(130) from None
    options = explain_options(read)
    answer(context, _document(read, report, options, dry_run), lambda: _text(read, report, options, dry_run))
    if not report.is_whole:
        raise typer.Exit(1)


def _taken(context: Any, conf: ScrapydConf, *, dry_run: bool) -> ImportReport:
    async def taking(weft: App) -> ImportReport:
        from weft.clock import now
        from weft.scrapyd.importing import ScrapydImport

        importing = ScrapydImport(weft.db, weft.blobs, weft.projects, weft.jobs, now)
        told = note if sys.stderr.isatty() else None
        return await importing.take(conf, project=options_of(context).project, dry_run=dry_run, told=told)

    try:
        on_this_machine(context, ONLY_HERE)
        return ask(context, taking, changes=not dry_run, checks_code=True)
    except NoWeft:
        if not dry_run:
            raise
        return asyncio.run(_foretold(context, taking))


async def _foretold(context: Any, taking: Callable[[App], Awaitable[ImportReport]]) -> ImportReport:
    """What would be taken where there is no weft yet: it is asked of one that is gone afterwards."""
    from weft.app import open_app

    config = settings(context).config
    with tempfile.TemporaryDirectory(prefix="weft-import-") as place:
        weft = await open_app(replace(config, data_dir=place, database="", broker="memory:", blobs=""))
        try:
            return await taking(weft)
        finally:
            await weft.close()


def _document(conf: ScrapydConf, report: ImportReport, options: list[OptionReport], dry_run: bool) -> dict[str, Any]:
    from weft.scrapyd.conf import NAMES_NOTE
    from weft.scrapyd.model import ImportKind, ImportOutcome

    counts = {kind.value: {fate.value: report.counts[kind, fate] for fate in ImportOutcome} for kind in ImportKind}
    return {
        "dir": str(conf.folder),
        "dry_run": dry_run,
        "counts": {name.replace(" ", "_"): each for name, each in counts.items()},
        "items_stored": report.items,
        "lines_refused": report.bad_items,
        "refused": report.refused,
        "notes": [*report.notes, NAMES_NOTE],
        "variables": report.variables,
        "conf_files": list(conf.files),
        "options": options,
    }


def _text(conf: ScrapydConf, report: ImportReport, options: list[OptionReport], dry_run: bool) -> str:
    from weft.scrapyd.conf import NAMES_NOTE, weft_toml

    parts = [
        _counts(report, dry_run),
        _nothing(conf, report),
        _refused(report),
        "\n".join(report.notes),
        _tracebacks(report),
        _options(conf, options),
        NAMES_NOTE,
        _environment(report),
    ]
    lines = weft_toml(options)
    if missing := sorted({name for names in report.variables.values() for name in names}):
        lines.append(f'spider_env = "{",".join(missing)}"')
    parts.append("\n".join(["for weft.toml:", *(f"  {line}" for line in lines)]) if lines else "")
    return "\n\n".join(part for part in parts if part)


def _counts(report: ImportReport, dry_run: bool) -> str:
    from weft.scrapyd.model import ImportKind, ImportOutcome

    rows = [(kind.value, *(report.counts[kind, fate] for fate in ImportOutcome)) for kind in ImportKind]
    told = table(("WHAT", "TO BE TAKEN" if dry_run else "TAKEN", "KNOWN", "REFUSED"), rows)
    return told if dry_run else f"{told}\n\n{report.items} items were stored"


def _nothing(conf: ScrapydConf, report: ImportReport) -> str:
    """Where it was looked, for whoever has named a folder that is not Scrapyd's."""
    if any(report.counts.values()):
        return ""
    places = [str(place) for name in FOLDERS if (place := conf.place(name)) is not None]
    return f"nothing of a Scrapyd is in {', '.join(places)}; --dir must be the folder in which it was started"


def _refused(report: ImportReport) -> str:
    return table(("REFUSED", "WHICH", "WHY"), [(each.kind.value, each.name, each.why) for each in report.refused])


def _environment(report: ImportReport) -> str:
    """What became of the environment of the daemon, which Scrapyd's spiders have."""
    from weft.scrapyd.model import ImportKind

    if not any(kind is ImportKind.EGG for kind, _ in report.counts):
        return ""
    reading = [f"  {project} reads {', '.join(names)}" for project, names in report.variables.items() if names]
    told = "spiders see no variables of the environment but those that the setting spider_env names"
    return "\n".join([f"{told}:" if reading else told, *reading])


def _tracebacks(report: ImportReport) -> str:
    told = [(each.name, each.traceback) for each in report.refused if each.traceback]
    return "\n\n".join(f"{name}:\n{TerminalLogText().feed(text.encode(), last=True).rstrip()}" for name, text in told)


def _options(conf: ScrapydConf, options: list[OptionReport]) -> str:
    if not conf.files:
        return "no scrapyd.conf was found, so Scrapyd's defaults count"
    rows = [
        (each.name if each.section == "scrapyd" else f"[{each.section}] {each.name}", each.value, each.meaning)
        for each in options
    ]
    return table(("OPTION", "VALUE", "IN WEFT"), rows)
