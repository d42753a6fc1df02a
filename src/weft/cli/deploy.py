"""``weft deploy``, ``weft versions`` and ``weft spiders``: deploy code, and manage the versions of projects."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from weft.cli.options import WeftCommand, WeftGroup, options_of
from weft.cli.output import TerminalLogText, ago, answer, note, table
from weft.cli.session import ask
from weft.errors import NOT_SHOWN, Conflict, Invalid, Rejected, WeftError

if TYPE_CHECKING:
    from weft.app import App
    from weft.projects.model import Argument, Spider, Version

GIT = "git+"
SCHEMES = ("https://", "http://", "ssh://", "file://")
CLONE_SECONDS, ASK_SECONDS = 600, 30
ARCHIVES = (".egg", ".whl", ".zip", ".tar.gz", ".tgz", ".tar.bz2")
NAMED = re.compile(r"(?P<project>[A-Za-z0-9][A-Za-z0-9._]*?)-(?P<version>v?\d[A-Za-z0-9._+!]*)(-.*)?")
COMPLAINTS = ("fatal: ", "error: ")
"""How git begins what is wrong; advice may follow."""
UNFIT_NAME = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class DeployBundle:
    """An archive to be deployed, and what it may be called."""

    archive: Path
    project: str | None
    version: str | None


@contextmanager
def bundle_of(source: str) -> Iterator[DeployBundle]:
    """The archive of what ``source`` names; what was made for it is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="weft-deploy-") as place:
        folder = Path(place)
        if source.startswith(GIT):
            yield _from_git(source, folder)
        elif Path(source).is_dir():
            yield pack_folder(Path(source), folder)
        elif Path(source).is_file():
            yield _from_file(Path(source))
        else:
            raise Invalid("PATH", source, "it must be a folder, an archive or git+https://…@ref")


def pack_folder(source: Path, place: Path, *, name: str = "", version: str | None = None) -> DeployBundle:
    """The files of a folder, as an archive below ``place``."""
    from weft.projects.layout import project_of, settings_of
    from weft.projects.packing import pack

    if not settings_of(source):
        raise Invalid(
            "PATH",
            str(source),
            "it must be the folder of a Scrapy project, with scrapy.cfg in it that names its settings",
        )
    archive = place / "code.zip"
    with archive.open("xb") as target:
        pack(source, target)
    named = project_of(source) or _fitting_name(name or source.resolve().name)
    return DeployBundle(archive, named, version or _described(source))


def _stamp() -> str:
    """A version that is named after the time."""
    return f"{datetime.now(UTC):%Y%m%d.%H%M%S}"


def _from_file(file: Path) -> DeployBundle:
    ending = next((each for each in ARCHIVES if file.name.lower().endswith(each)), None)
    if ending is None:
        raise Invalid("PATH", str(file), f"an archive must end with one of {', '.join(ARCHIVES)}")
    stem = file.name[: -len(ending)]
    found = NAMED.fullmatch(stem)
    return (
        DeployBundle(file, found["project"], _fitting_name(found["version"]))
        if found
        else DeployBundle(file, _fitting_name(stem), None)
    )


def _from_git(source: str, place: Path) -> DeployBundle:
    address, _, fragment = source.removeprefix(GIT).partition("#")
    url, ref = _url_and_ref(address)
    if not url.startswith(SCHEMES) or ref.startswith("-"):
        raise Invalid("PATH", source, f"it must be git+URL@REF, with a URL that begins with {', '.join(SCHEMES)}")
    clone = place / "clone"
    _git("init", "--quiet", str(clone))
    _git("-C", str(clone), "fetch", "--quiet", "--depth", "1", "--", url, ref, seconds=CLONE_SECONDS)
    _git("-C", str(clone), "checkout", "--quiet", "FETCH_HEAD")
    folder = _folder_inside(clone, fragment)
    name = Path(url.rstrip("/")).name.removesuffix(".git") if folder == clone.resolve() else folder.name
    is_tag = ref != "HEAD" and _git("ls-remote", "--tags", "--", url, ref, seconds=CLONE_SECONDS) != ""
    version = _fitting_name(ref) if is_tag else _git("-C", str(clone), "rev-parse", "--short=12", "FETCH_HEAD")
    return pack_folder(folder, place, name=name, version=version)


def _url_and_ref(address: str) -> tuple[str, str]:
    """The @ before the first slash is part of the URL: ssh://git@host/repo.git@v1.0."""
    scheme, _, rest = address.partition("://")
    host, slash, path = rest.partition("/")
    path, _, ref = path.partition("@")
    return f"{scheme}://{host}{slash}{path}", ref or "HEAD"


def _folder_inside(clone: Path, fragment: str) -> Path:
    """The folder of a clone that ``#subdirectory=…`` names."""
    name = fragment.removeprefix("subdirectory=")
    place = (clone / name).resolve()
    if not place.is_relative_to(clone.resolve()) or not place.is_dir():
        raise Invalid("the subdirectory", name, "there is no such folder in the repository")
    return place


def _described(folder: Path) -> str | None:
    """What git calls the state of a folder, with the time where it was changed since; None where git knows nothing."""
    if shutil.which("git") is None:
        return None
    try:
        name = _git("-C", str(folder), "describe", "--tags", "--always")
        changed = _git("-C", str(folder), "status", "--porcelain", "--", ".") != ""
    except Conflict:
        return None
    return _fitting_name(f"{name}-{_stamp()}" if changed else name)


def _git(*words: str, seconds: float = ASK_SECONDS) -> str:
    git = shutil.which("git")
    if git is None:
        raise Conflict("git is not on the PATH; install it, or deploy a folder or an archive")
    try:
        done = subprocess.run(
            [git, "-c", "protocol.ext.allow=never", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            env=os.environ | {"GIT_TERMINAL_PROMPT": "0"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Conflict(f"git has not answered within {seconds:g} s") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["it does not say why"]
        told = [line for line in lines if line.startswith(COMPLAINTS)] or lines[-1:]
        raise Conflict(f"git cannot do this: {told[0]}")
    return done.stdout.strip()


def _fitting_name(text: str) -> str | None:
    """The text as a name, as far as it can be one."""
    return UNFIT_NAME.sub("-", text).lstrip("._-")[:100] or None


versions_app = typer.Typer(
    cls=WeftGroup, no_args_is_help=True, add_completion=False, help="List, activate and delete versions of projects."
)

Name = Annotated[str, typer.Argument(metavar="VERSION", help="The name of a version.")]
VERSION_HEADINGS = ("VERSION", "CURRENT", "SPIDERS", "FORMAT", "SIZE", "DEPLOYED", "BY")
SPIDER_HEADINGS = ("SPIDER", "ARGUMENTS", "ABOUT")


@versions_app.command("list", cls=WeftCommand)
def list_versions(context: typer.Context) -> None:
    """List the versions of a project, the newest by name first."""
    project = _project_of(context)
    found = ask(context, lambda weft: weft.projects.versions(project))
    empty = f"project {project} has no version; `weft deploy` makes one"
    answer(
        context,
        [version_document(each) for each in found],
        lambda: table(VERSION_HEADINGS, map(_version_row, found), empty=empty),
    )


@versions_app.command("use", cls=WeftCommand)
def use_version(context: typer.Context, version: Name) -> None:
    """Activate a version: runs that are queued from now on execute it."""
    project = _project_of(context)
    _report_version(context, ask(context, lambda weft: weft.projects.use(project, version), changes=True))


@versions_app.command("rollback", cls=WeftCommand)
def rollback_version(context: typer.Context) -> None:
    """Roll back to the version that was deployed before the current one."""
    project = _project_of(context)
    _report_version(context, ask(context, lambda weft: weft.projects.rollback(project), changes=True))


@versions_app.command("delete", cls=WeftCommand)
def delete_version(
    context: typer.Context,
    version: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a version that is not current, or the last one; refused while runs still need it."""
    from weft.cli.output import confirm

    project = _project_of(context)
    confirm(context, f"delete version {version} of project {project}?", yes=yes)
    ask(context, lambda weft: weft.projects.delete(project, version), changes=True)
    told = {"project": project, "version": version}
    answer(context, told, lambda: f"version {version} of project {project} is deleted")


def list_spiders(
    context: typer.Context,
    project: Annotated[str | None, typer.Argument(metavar="PROJECT", help="The name of a project.")] = None,
    code_version: Annotated[
        str | None, typer.Option(metavar="VERSION", help="The version of the code; default: the current one.")
    ] = None,
) -> None:
    """List the spiders of a project, or of all projects, and their arguments."""
    named = project or options_of(context).project
    if named is None and code_version is None:
        _list_all_versions(context)
        return
    found = ask(context, lambda weft: weft.projects.spiders(named or "default", code_version))
    answer(context, [msgspec.to_builtins(each) for each in found], lambda: spiders_text(found))


def _list_all_versions(context: Any) -> None:
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


def version_document(version: Version) -> Any:
    from weft.operations.versions import version_document

    return msgspec.to_builtins(version_document(version))


def _arguments(spider: Spider) -> str:
    more = ["…"] if spider.takes_more else []
    return ", ".join([*(_argument(each) for each in spider.arguments), *more])


def _argument(argument: Argument) -> str:
    typed = f": {argument.annotation}" if argument.annotation else ""
    return f"{argument.name}{typed}" if argument.default is None else f"{argument.name}{typed} = {argument.default}"


def _version_row(version: Version) -> tuple[object, ...]:
    current = "yes" if version.is_current else ""
    count, size = len(version.spiders), f"{version.size / 1000:.1f} kB"
    return version.version, current, count, version.format, size, ago(version.deployed_at), version.deployed_by


def _report_version(context: Any, version: Version) -> None:
    answer(
        context, version_document(version), lambda: f"version {version.version} of project {version.project} is current"
    )


def _project_of(context: Any) -> str:
    return options_of(context).project or "default"


LOOK_SECONDS = 1.0
STEP_SECONDS, STILL_SECONDS = 0.5, 10.0
"""How often it is asked how far a deploy has come, and how often a step that goes on is told again."""
PATIENCE_SECONDS = 5.0
PATIENCE = "the code is being checked; it may take a minute to import"
"""What a person is told after so long without an answer."""


def deploy(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(metavar="PATH", help="A folder, an egg, wheel, sdist or zip, or git+https://…@ref.")
    ] = ".",
    code_version: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="The version of the code; default: git's, or the time."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Deploy again whenever a file changes, until Ctrl-C.")] = False,
) -> None:
    """Deploy code: check it, store it as a version of its project and make that current."""
    if watch:
        _watch(context, source, code_version)
        return
    with bundle_of(source) as bundle:
        _report_deploy(context, _deploy_bundle(context, bundle, code_version or bundle.version))


def _deploy_bundle(context: Any, bundle: DeployBundle, version: str | None) -> Version:
    project = options_of(context).project or bundle.project
    if not project:
        raise Invalid("--project", NOT_SHOWN, "it must be given, since nothing says whose code this is")
    options_of(context).project = project
    from weft.cli.auditing import local_user

    by = f"local:{local_user()}"

    async def deploying(weft: App) -> Version:
        patience = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, _ask_for_patience)
        name = secrets.token_hex(8)
        showing = asyncio.create_task(_show_progress(weft, project, name, patience))
        try:
            return await weft.projects.deploy(project, bundle.archive, version, by=by, progress=name)
        finally:
            patience.cancel()
            showing.cancel()

    try:
        return ask(context, deploying, changes=True, checks_code=True)
    except Rejected as problem:
        _print_line(problem.traceback)
        raise


async def _show_progress(weft: App, project: str, name: str, patience: asyncio.TimerHandle) -> None:
    """Tell what the deploy is busy with while requirements are installed: what is new, and every so often that it still
    is."""
    shown, at = "", 0.0
    while True:
        await asyncio.sleep(STEP_SECONDS)
        try:
            step = await weft.projects.step(project, name)
        except WeftError:
            return
        if step.text and (step.text != shown or step.seconds - at >= STILL_SECONDS):
            patience.cancel()
            shown, at = step.text, step.seconds
            note(f"{step.seconds:>4.0f} s  {step.text}")


def _ask_for_patience() -> None:
    if sys.stderr.isatty():
        note(PATIENCE)


def _watch(context: Any, source: str, version: str | None) -> None:
    """Deploy, and again after each change. What is wrong is told, and the next change is waited for."""
    from weft.cli.main import complain
    from weft.projects.packing import files_of

    folder = Path(source)
    if not folder.is_dir() or version is not None:
        raise Invalid("--watch", source, "it is for a folder, and names versions after the time")
    seen: object = None
    try:
        while True:
            state = [(name, _changed_at(folder / name)) for name in files_of(folder)]
            if state != seen:
                seen = state
                try:
                    _report_deploy(context, _packed_and_deployed(context, folder))
                except WeftError as problem:
                    complain(problem)
                sys.stdout.flush()
            time.sleep(LOOK_SECONDS)
    except KeyboardInterrupt:
        note("no longer watching")


def _packed_and_deployed(context: Any, folder: Path) -> Version:
    with tempfile.TemporaryDirectory(prefix="weft-deploy-") as place:
        return _deploy_bundle(context, pack_folder(folder, Path(place)), None)


def _changed_at(file: Path) -> tuple[int, int]:
    try:
        found = file.stat()
    except FileNotFoundError:
        return (0, 0)
    return (found.st_mtime_ns, found.st_size)


def _report_deploy(context: Any, version: Version) -> None:
    answer(context, version_document(version), lambda: _deploy_text(version))


def _deploy_text(version: Version) -> str:
    count = len(version.spiders)
    told = (
        f"version {version.version} of project {version.project} is current; it has {count} spider{'s'[: count != 1]}"
    )
    return "\n\n".join(filter(None, (told, spiders_text(version.spiders), _warnings(version))))


def _warnings(version: Version) -> str:
    """What a look at its source has found."""
    count = len(version.warnings)
    lines = [f"{count} warning{'s'[: count != 1]}:", *(f"  {each}" for each in version.warnings)]
    return "\n".join(lines) if count else ""


def _print_line(traceback: str) -> None:
    if traceback:
        note(TerminalLogText().feed(traceback.encode(), last=True).rstrip())
