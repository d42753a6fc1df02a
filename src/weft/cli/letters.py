"""``weft letters``: messages that could not become a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import typer

from weft.cli.options import Command, Group, options_of, whole
from weft.cli.output import LogText, ago, answer, fields, table
from weft.cli.session import ask
from weft.errors import Invalid, WeftError

if TYPE_CHECKING:
    from weft.app import App
    from weft.intake.letter import Letter, LetterState, OpenLetter, Resubmitted

T = TypeVar("T")
Batch: TypeAlias = tuple[list[T], WeftError | None]

app = typer.Typer(
    cls=Group, no_args_is_help=True, add_completion=False, help="Messages from queues that could not become a run."
)

STATES = ("dead", "resubmitted", "dropped", "all")
HEADINGS = ("ID", "STATE", "PROJECT", "SOURCE", "RECEIVED", "BYTES", "RUN", "REASON")

letter_number = whole("the number of a letter", 1, 2**63 - 1)

LetterId = Annotated[int, typer.Argument(metavar="ID", parser=letter_number, help="The number of a letter.")]
LetterIds = Annotated[list[int], typer.Argument(metavar="ID...", parser=letter_number, help="The numbers of letters.")]


@app.command("list", cls=Command)
def list_(
    context: typer.Context,
    state: Annotated[str, typer.Option(metavar="STATE", help=f"Only these: {', '.join(STATES)}.")] = "dead",
    source: Annotated[str | None, typer.Option(metavar="NAME", help="Only those from this queue or stream.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", parser=whole("--limit", 1, 500), help="How many at most.")] = 50,
    before: Annotated[
        int | None, typer.Option(metavar="ID", parser=letter_number, help="Only older ones than this letter.")
    ] = None,
) -> None:
    """List dead letters, newest first."""
    from weft.documents.letters import letter_document
    from weft.intake.letter import Wanted

    project, chosen = options_of(context).project, _state(state)
    projects = None if project is None else [project]
    wanted = Wanted(projects=projects, state=chosen, source=source, before=before, limit=limit)
    found = ask(context, lambda weft: weft.letters.find(wanted))
    documents = [letter_document(each) for each in found]
    empty = "no message is dead" if state == "dead" else "there is no such letter"
    answer(context, documents, lambda: table(HEADINGS, map(_row, found), empty=empty))


@app.command(cls=Command)
def show(context: typer.Context, letter_id: LetterId) -> None:
    """Show one letter: why it is here, and what is written in it."""
    opened = ask(context, lambda weft: weft.letters.get(letter_id))
    answer(context, _document(opened), lambda: _text(opened))


@app.command(cls=Command)
def edit(
    context: typer.Context,
    letter_id: LetterId,
    body: Annotated[str | None, typer.Option(metavar="TEXT", help="What is to be written in it.")] = None,
    file: Annotated[Path | None, typer.Option(metavar="FILE", help="The file that has it.")] = None,
) -> None:
    """Write something else in a dead letter: from a file, as given, or with $EDITOR. What came is kept."""
    if body is not None and file is not None:
        raise Invalid("--file", str(file), "it cannot be given together with --body")
    context.params["body"] = None  # the audit log tells that the text was changed; the text itself may hold secrets
    given = _read(file) if file is not None else None if body is None else body.encode(errors="surrogateescape")

    async def work(weft: App) -> OpenLetter:
        opened = await weft.letters.get(letter_id)
        written = _edited(opened.body) if given is None else given
        if written == opened.body:
            return opened
        return await weft.letters.edit(letter_id, written, seen=[opened.letter.revision])

    changed = ask(context, work, changes=True)
    words = "is as it came" if not changed.letter.edited else "is edited; `weft letters resubmit` sends it in again"
    answer(context, _document(changed), lambda: f"letter {letter_id} {words}")


@app.command(cls=Command)
def resubmit(context: typer.Context, letter_ids: LetterIds) -> None:
    """Send dead letters in again, as they are written now; exit 1 where one is refused again."""
    from weft.documents.letters import resubmitted_document

    async def work(weft: App) -> Batch[Resubmitted]:
        batch = await _one_by_one(letter_ids, weft.letters.resubmit)
        await weft.bell.flush()
        return batch

    done, problem = ask(context, work, changes=True)
    if done or problem is None:
        answer(context, [resubmitted_document(each) for each in done], lambda: "\n".join(map(_outcome, done)))
    if problem is not None:
        raise problem
    if any(each.refused is not None for each in done):
        raise typer.Exit(1)


@app.command(cls=Command)
def drop(
    context: typer.Context,
    letter_ids: LetterIds,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Drop dead letters: they are kept, but wait for nobody any more."""
    from weft.cli.changes import confirm
    from weft.documents.letters import letter_document

    named = ", ".join(map(str, letter_ids))
    confirm(context, f"drop letter {named}?", yes=yes)

    async def work(weft: App) -> Batch[Letter]:
        return await _one_by_one(letter_ids, weft.letters.drop)

    done, problem = ask(context, work, changes=True)
    lines = [f"letter {each.id} is dropped" for each in done]
    if done or problem is None:
        answer(context, [letter_document(each) for each in done], lambda: "\n".join(lines))
    if problem is not None:
        raise problem


async def _one_by_one(letter_ids: Sequence[int], change: Callable[[int], Awaitable[T]]) -> Batch[T]:
    """What came of the letters, up to the first with which that could not be done; and why it could not."""
    done: list[T] = []
    for each in letter_ids:
        try:
            done.append(await change(each))
        except WeftError as problem:
            return done, problem
    return done, None


def _state(text: str) -> LetterState | None:
    from weft.intake.letter import LetterState

    if text not in STATES:
        raise Invalid("--state", text, f"it must be one of {', '.join(STATES)}")
    return None if text == "all" else LetterState(text)


def _row(letter: Letter) -> Sequence[object]:
    received = ago(letter.received_at)
    return (
        letter.id,
        letter.state.value,
        letter.project,
        letter.source,
        received,
        letter.body_bytes,
        letter.run_id,
        letter.reason,
    )


def _text(opened: OpenLetter) -> str:
    from weft.documents.letters import as_text

    letter = opened.letter
    body, encoding = as_text(opened.body)
    pairs = [("letter", letter.id), ("state", letter.state.value), ("run", letter.run_id), ("reason", letter.reason)]
    pairs += [("project", letter.project), ("source", letter.source), ("message", letter.message_id)]
    pairs += [("received", ago(letter.received_at)), ("edited", letter.edited or None), ("bytes", letter.body_bytes)]
    pairs += [(f"header {name}", value) for name, value in opened.headers.items()]
    pairs += [("encoding", None if encoding == "utf-8" else encoding)]
    return f"{fields(pairs)}\n\n{LogText().feed(body.encode(), last=True)}"


def _outcome(done: Resubmitted) -> str:
    if done.refused is not None:
        return f"letter {done.letter.id} was refused again: {done.refused}"
    return f"letter {done.letter.id} is run {done.run_id}{'' if done.fresh else ', which it was before'}"


def _document(opened: OpenLetter) -> Any:
    from weft.documents.letters import open_letter_document

    return open_letter_document(opened)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as problem:
        raise Invalid("--file", str(file), f"it must be a file that can be read ({problem.strerror})") from problem


def _edited(body: bytes) -> bytes:
    """What a person makes of the body in an editor."""
    from weft.cli.editor import edited

    try:
        return edited(body.decode(), suffix=".json").encode(errors="surrogateescape")
    except UnicodeDecodeError:
        raise Invalid("the letter", "no text", "it must be edited with --file") from None
