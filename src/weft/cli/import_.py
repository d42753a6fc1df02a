"""``weft import``: what another system has, taken over."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli import contexts
from weft.cli.options import Command, Group, options_of
from weft.cli.output import LogText, answer, note, table
from weft.errors import Conflict

if TYPE_CHECKING:
    from weft.app import App
    from weft.scrapyd.conf import ScrapydConf
    from weft.scrapyd.conf_report import Option
    from weft.scrapyd.import_model import Report

FOLDERS = ("eggs_dir", "dbs_dir", "logs_dir", "items_dir")

app = typer.Typer(cls=Group, no_args_is_help=True, add_completion=False, help="Take over what another system has.")


@app.callback()
def nouns() -> None:
    """Take over what another system has."""


@app.command(cls=Command)
def scrapyd(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="The folder in which Scrapyd was started; it is only read.")
    ],
    conf: Annotated[
        Path | None, typer.Option("--conf", metavar="FILE", help="Its scrapyd.conf; left out: those it would read.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell what would be taken; nothing is written.")
    ] = False,
) -> None:
    """Take over eggs, jobs, logs and items of a Scrapyd; made again, it takes what is not there yet."""
    from weft.scrapyd.conf import read_conf
    from weft.scrapyd.conf_report import explained

    if contexts.chosen(context) is not None:
        raise Conflict("an import reads files of this machine, so it works on the weft of this machine alone")
    read = read_conf(folder, conf)
    try:
        report = _taken(context, read, dry_run=dry_run)
    except KeyboardInterrupt:
        note("stopped; what was taken stays, and the same command takes the rest")
        raise typer.Exit(130) from None
    options = explained(read)
    answer(context, _document(read, report, options, dry_run), lambda: _text(read, report, options, dry_run))
    if not report.is_whole:
        raise typer.Exit(1)


def _taken(context: Any, conf: ScrapydConf, *, dry_run: bool) -> Report:
    async def taking(weft: App) -> Report:
        from weft.clock import now
        from weft.scrapyd.importing import Importing

        importing = Importing(weft.db, weft.blobs, weft.projects, weft.jobs, now)
        told = note if sys.stderr.isatty() else None
        return await importing.take(conf, project=options_of(context).project, dry_run=dry_run, told=told)

    from weft.cli.session import ask

    if not dry_run:
        return ask(context, taking, create=True, changes=True)
    return _foretold(context, taking)


def _foretold(context: Any, taking: Any) -> Report:
    """What would be taken; where there is no weft yet, on one that is gone afterwards."""
    import asyncio

    from weft.cli.session import check_there, opened, settings
    from weft.errors import NotFound

    config = settings(context).config

    async def looking(where: Any) -> Report:
        weft = await opened(where)
        try:
            found: Report = await taking(weft)
            return found
        finally:
            await weft.close()

    try:
        check_there(config)
    except NotFound:
        with tempfile.TemporaryDirectory(prefix="weft-import-") as place:
            return asyncio.run(looking(replace(config, data_dir=place, database="", broker="memory:", blobs="")))
    return asyncio.run(looking(config))


def _document(conf: ScrapydConf, report: Report, options: list[Option], dry_run: bool) -> dict[str, Any]:
    from weft.scrapyd.import_model import Fate, Kind

    counts = {kind.value: {fate.value: report.counts[kind, fate] for fate in Fate} for kind in Kind}
    return {
        "dir": str(conf.folder),
        "dry_run": dry_run,
        "counts": {name.replace(" ", "_"): each for name, each in counts.items()},
        "items_stored": report.items,
        "lines_refused": report.bad_items,
        "refused": report.refused,
        "notes": report.notes,
        "conf_files": list(conf.files),
        "options": options,
    }


def _text(conf: ScrapydConf, report: Report, options: list[Option], dry_run: bool) -> str:
    from weft.scrapyd.conf_report import weft_toml

    parts = [
        _counts(report, dry_run),
        _nothing(conf, report),
        _refused(report),
        "\n".join(report.notes),
        _tracebacks(report),
        _options(conf, options),
    ]
    lines = weft_toml(options)
    parts.append("\n".join(["for weft.toml:", *(f"  {line}" for line in lines)]) if lines else "")
    return "\n\n".join(part for part in parts if part)


def _counts(report: Report, dry_run: bool) -> str:
    from weft.scrapyd.import_model import Fate, Kind

    rows = [(kind.value, *(report.counts[kind, fate] for fate in Fate)) for kind in Kind]
    told = table(("WHAT", "TO BE TAKEN" if dry_run else "TAKEN", "KNOWN", "REFUSED"), rows)
    return told if dry_run else f"{told}\n\n{report.items} items were stored"


def _nothing(conf: ScrapydConf, report: Report) -> str:
    """Where it was looked, for whoever has named a folder that is not Scrapyd's."""
    if any(report.counts.values()):
        return ""
    places = [str(place) for name in FOLDERS if (place := conf.place(name)) is not None]
    return f"nothing of a Scrapyd is in {', '.join(places)}; --dir must be the folder in which it was started"


def _refused(report: Report) -> str:
    return table(("REFUSED", "WHICH", "WHY"), [(each.kind.value, each.name, each.why) for each in report.refused])


def _tracebacks(report: Report) -> str:
    told = [(each.name, each.traceback) for each in report.refused if each.traceback]
    return "\n\n".join(f"{name}:\n{LogText().feed(text.encode(), last=True).rstrip()}" for name, text in told)


def _options(conf: ScrapydConf, options: list[Option]) -> str:
    if not conf.files:
        return "no scrapyd.conf was found, so Scrapyd's defaults count"
    rows = [
        (each.name if each.section == "scrapyd" else f"[{each.section}] {each.name}", each.value, each.meaning)
        for each in options
    ]
    return table(("OPTION", "VALUE", "IN WEFT"), rows)
