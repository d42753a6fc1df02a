"""``weft dead-letters``: dead letters, messages that could not become a run."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import typer

from weft.cli.options import WeftCommand, WeftGroup, options_of, whole
from weft.cli.output import TerminalLogText, ago, answer, fields, none_of, table
from weft.cli.session import ask
from weft.errors import NOT_SHOWN, Invalid, WeftError
from weft.untrusted_files import LARGEST_FILE, read_named

if TYPE_CHECKING:
    from weft.app import App
    from weft.intake.model import DeadLetter, DeadLetterDetail, DeadLetterState, Resubmission


def edit_text(text: str, *, suffix: str) -> str:
    """The text as the person leaves it. It lies in a file that nobody else can read, and only for so long."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not command and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Invalid("EDITOR", NOT_SHOWN, "it must name an editor where nobody can be asked; or give --file or --body")
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        file = Path(folder, f"edited{suffix}")
        file.write_text(text, encoding="utf-8", newline="")
        _run_editor([*shlex.split(command or "vi"), str(file)])
        return file.read_bytes().decode(errors="surrogateescape")


def _run_editor(command: list[str]) -> None:
    try:
        code = subprocess.run(command, check=False).returncode
    except OSError as problem:
        raise Invalid("EDITOR", command[0], f"it must be a program that can be started ({problem.strerror})") from None
    if code != 0:
        raise Invalid("EDITOR", command[0], f"it ended with code {code}, so nothing was changed")


T = TypeVar("T")
Batch: TypeAlias = tuple[list[T], WeftError | None]

app = typer.Typer(
    cls=WeftGroup,
    no_args_is_help=True,
    add_completion=False,
    help="Inspect, edit and resubmit dead letters: queue messages that could not become a run.",
)

STATES = ("dead", "resubmitted", "dropped", "all")
HEADINGS = ("ID", "STATE", "PROJECT", "SOURCE", "RECEIVED", "BYTES", "RUN", "REASON")

dead_letter_number = whole("the number of a dead letter", 1, 2**63 - 1)

DeadLetterId = Annotated[
    int, typer.Argument(metavar="ID", parser=dead_letter_number, help="The number of a dead letter.")
]
DeadLetterIds = Annotated[
    list[int], typer.Argument(metavar="ID...", parser=dead_letter_number, help="The numbers of dead letters.")
]


@app.command("list", cls=WeftCommand)
def list_(
    context: typer.Context,
    state: Annotated[
        str, typer.Option(metavar="STATE", help=f"Only those in this state; {', '.join(STATES)}.")
    ] = "dead",
    source: Annotated[str | None, typer.Option(metavar="NAME", help="Only those from this queue or stream.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", parser=whole("--limit", 1, 500), help="How many at most.")] = 50,
    before: Annotated[
        int | None, typer.Option(metavar="ID", parser=dead_letter_number, help="Only older ones than this ID.")
    ] = None,
) -> None:
    """List dead letters, newest first."""
    from weft.intake.model import DeadLetterFilter
    from weft.operations.dead_letters import dead_letter_document

    project, chosen = options_of(context).project, _state(state)
    projects = None if project is None else [project]
    wanted = DeadLetterFilter(projects=projects, state=chosen, source=source, before=before, limit=limit)
    found = ask(context, lambda weft: weft.dead_letters.find(wanted))
    documents = [dead_letter_document(each) for each in found]
    empty = none_of(
        "dead-letters", [projects, source, before, chosen if state != "dead" else None], "no message is dead"
    )
    answer(context, documents, lambda: table(HEADINGS, map(_row, found), empty=empty))


@app.command(cls=WeftCommand)
def show(context: typer.Context, dead_letter_id: DeadLetterId) -> None:
    """Show a dead letter: its error and its body."""
    opened = ask(context, lambda weft: weft.dead_letters.get(dead_letter_id))
    answer(context, _document(opened), lambda: _text(opened))


@app.command(cls=WeftCommand)
def edit(
    context: typer.Context,
    dead_letter_id: DeadLetterId,
    body: Annotated[str | None, typer.Option(metavar="TEXT", help="The new body.")] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="FILE", help="A file with the new text or value; - is the standard input."),
    ] = None,
) -> None:
    """Edit the body of a dead letter: from a file, as given, or with $EDITOR. The original is kept."""
    if body is not None and file is not None:
        raise Invalid("--file", file, "it cannot be given together with --body")
    context.params["body"] = None  # the audit log tells that the text was changed; the text itself may hold secrets
    given = _read(file) if file is not None else None if body is None else body.encode(errors="surrogateescape")

    async def work(weft: App) -> DeadLetterDetail:
        opened = await weft.dead_letters.get(dead_letter_id)
        written = _edited(opened.body) if given is None else given
        if written == opened.body:
            return opened
        return await weft.dead_letters.edit(dead_letter_id, written, seen=[opened.dead_letter.revision])

    changed = ask(context, work, changes=True)
    words = (
        "is as it came"
        if not changed.dead_letter.edited
        else "is edited; `weft dead-letters resubmit` sends it in again"
    )
    answer(context, _document(changed), lambda: f"dead letter {dead_letter_id} {words}")


@app.command(cls=WeftCommand)
def resubmit(context: typer.Context, dead_letter_ids: DeadLetterIds) -> None:
    """Resubmit dead letters with their current body; exit 1 where one is rejected again."""
    from weft.operations.dead_letters import resubmit_result

    async def work(weft: App) -> Batch[Resubmission]:
        batch = await _one_by_one(dead_letter_ids, weft.dead_letters.resubmit)
        await weft.wakeups.flush()
        return batch

    done, problem = ask(context, work, changes=True)
    if done or problem is None:
        answer(context, [resubmit_result(each) for each in done], lambda: "\n".join(map(_outcome, done)))
    if problem is not None:
        raise problem
    if any(each.refused is not None for each in done):
        raise typer.Exit(1)


@app.command(cls=WeftCommand)
def drop(
    context: typer.Context,
    dead_letter_ids: DeadLetterIds,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Drop dead letters: they stay stored, but no longer need attention."""
    from weft.cli.output import confirm
    from weft.operations.dead_letters import dead_letter_document

    named = ", ".join(map(str, dead_letter_ids))
    confirm(context, f"drop dead letter {named}?", yes=yes)

    async def work(weft: App) -> Batch[DeadLetter]:
        return await _one_by_one(dead_letter_ids, weft.dead_letters.drop)

    done, problem = ask(context, work, changes=True)
    lines = [f"dead letter {each.id} is dropped" for each in done]
    if done or problem is None:
        answer(context, [dead_letter_document(each) for each in done], lambda: "\n".join(lines))
    if problem is not None:
        raise problem


async def _one_by_one(dead_letter_ids: Sequence[int], change: Callable[[int], Awaitable[T]]) -> Batch[T]:
    """What came of the dead letters, up to the first with which that could not be done; and why it could not."""
    done: list[T] = []
    for each in dead_letter_ids:
        try:
            done.append(await change(each))
        except WeftError as problem:
            return done, problem
    return done, None


def _state(text: str) -> DeadLetterState | None:
    from weft.intake.model import DeadLetterState

    if text not in STATES:
        raise Invalid("--state", text, f"it must be one of {', '.join(STATES)}")
    return None if text == "all" else DeadLetterState(text)


def _row(dead_letter: DeadLetter) -> Sequence[object]:
    received = ago(dead_letter.received_at)
    return (
        dead_letter.id,
        dead_letter.state.value,
        dead_letter.project,
        dead_letter.source,
        received,
        dead_letter.body_bytes,
        dead_letter.run_id,
        dead_letter.reason,
    )


def _text(opened: DeadLetterDetail) -> str:
    from weft.intake.model import masked_body
    from weft.operations.dead_letters import body_text
    from weft.redaction import redacted_tree

    dead_letter = opened.dead_letter
    body, encoding = body_text(masked_body(opened.body))
    pairs = [
        ("dead letter", dead_letter.id),
        ("state", dead_letter.state.value),
        ("run", dead_letter.run_id),
        ("reason", dead_letter.reason),
    ]
    pairs += [("project", dead_letter.project), ("source", dead_letter.source), ("message", dead_letter.message_id)]
    pairs += [
        ("received", ago(dead_letter.received_at)),
        ("edited", dead_letter.edited or None),
        ("bytes", dead_letter.body_bytes),
    ]
    pairs += [(f"header {name}", value) for name, value in redacted_tree(opened.headers).items()]
    pairs += [("encoding", None if encoding == "utf-8" else encoding)]
    return f"{fields(pairs)}\n\n{TerminalLogText().feed(body.encode(), last=True)}"


def _outcome(done: Resubmission) -> str:
    if done.refused is not None:
        return f"dead letter {done.dead_letter.id} was refused again: {done.refused}"
    return f"dead letter {done.dead_letter.id} is run {done.run_id}{'' if done.fresh else ', which it was before'}"


def _document(opened: DeadLetterDetail) -> Any:
    from weft.operations.dead_letters import dead_letter_content

    return dead_letter_content(opened)


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else read_named(Path(file), LARGEST_FILE)
    except OSError as problem:
        raise Invalid("--file", file, f"it must be a file that can be read ({problem.strerror})") from problem


def _edited(body: bytes) -> bytes:
    """What a person makes of the body in an editor."""

    try:
        return edit_text(body.decode(), suffix=".json").encode(errors="surrogateescape")
    except UnicodeDecodeError:
        raise Invalid("the dead letter", NOT_SHOWN, "it is not text, so it must be edited with --file") from None
