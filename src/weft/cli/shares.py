"""``weft shares``: links by which guests look at a project."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.options import Command, Group, options_of, whole
from weft.cli.output import ago, answer, shown, table
from weft.cli.session import ask
from weft.clock import now, seconds
from weft.errors import NOT_SHOWN, Invalid

if TYPE_CHECKING:
    from weft.access.share import Share
    from weft.app import App

app = typer.Typer(
    cls=Group, no_args_is_help=True, add_completion=False, help="Links by which guests look at a project."
)

HEADINGS = ("LINK", "FOR", "STATE", "PROJECT", "SHOWS", "MADE BY", "LAST USED", "EXPIRES")
MAKER = "command line"
DAY = 86_400
MOST = 500


@app.command("list", cls=Command)
def list_(context: typer.Context) -> None:
    """List the links for guests, newest first; with `--project` those to it."""
    from weft.access.share import share_document

    project = options_of(context).project
    within = None if project is None else [project]
    shares = ask(context, lambda weft: weft.shares.page(within, limit=MOST))
    empty = "there is no link for guests; `weft shares create` makes one"
    answer(context, [share_document(each) for each in shares], lambda: table(HEADINGS, map(_row, shares), empty=empty))


@app.command(cls=Command)
def create(
    context: typer.Context,
    label: Annotated[str, typer.Option("--for", metavar="TEXT", help="For whom it is, or what for.")],
    dataset: Annotated[
        str | None, typer.Option(metavar="NAME", help="Show this dataset alone; the whole project unless told.")
    ] = None,
    expires_days: Annotated[
        int | None,
        typer.Option(metavar="N", parser=whole("--expires-days", 1, 3650), help="It shows nothing after so many days."),
    ] = None,
) -> None:
    """Make a link for guests to `--project`; it is shown this once and kept nowhere."""
    from weft.access.share import share_document, share_path

    project = options_of(context).project
    if project is None:
        raise Invalid("--project", NOT_SHOWN, "it must name the project that guests are to see")
    expires_at = None if expires_days is None else now() + seconds(expires_days * DAY)

    async def work(weft: App) -> tuple[Share, str]:
        if dataset is not None:
            await weft.datasets.get(project, dataset)
        return await weft.shares.create(project, label=label, by=MAKER, dataset=dataset, expires_at=expires_at)

    share, token = ask(context, work, changes=True)
    told = {"share": share_document(share), "token": token, "path": share_path(token)}
    answer(
        context,
        told,
        lambda: (
            f"link {share.id} is made: {shown(_shows(share))}\n"
            f"below weft's address, shown this once: {share_path(token)}"
        ),
    )


@app.command(cls=Command)
def revoke(
    context: typer.Context,
    share_id: Annotated[
        int, typer.Argument(metavar="LINK", parser=whole("the number of a link", 1, 2**63 - 1), help="Its number.")
    ],
) -> None:
    """Revoke a link for guests: it shows nothing from now on, for good."""
    from weft.access.share import share_document

    share = ask(context, lambda weft: weft.shares.revoke(share_id), changes=True)
    answer(context, share_document(share), lambda: f"link {share.id} ({shown(share.label)}) is revoked")


def _row(share: Share) -> tuple[object, ...]:
    used, expires = ago(share.used_at), ago(share.expires_at)
    shows = share.dataset or "everything"
    return (share.id, share.label, _state(share), share.project, shows, share.created_by, used, expires)


def _state(share: Share) -> str:
    if share.revoked_at is not None:
        return "revoked"
    return "open" if share.is_valid(now()) else "expired"


def _shows(share: Share) -> str:
    what = f"project {share.project}" if share.dataset is None else f"dataset {share.project}/{share.dataset}"
    until = "" if share.expires_at is None else f", expires {ago(share.expires_at)}"
    return f"{what}{until}"
