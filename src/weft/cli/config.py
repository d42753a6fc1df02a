"""``weft config``: every setting and where its value comes from."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.output import answer, table
from weft.cli.session import settings
from weft.settings import Setting


def config(
    context: typer.Context,
    explain: Annotated[bool, typer.Option("--explain", help="Say what each setting is for.")] = False,
) -> None:
    """Print every setting and where its value comes from; secrets as dots."""
    found = settings(context).settings
    headings = ("SETTING", "VALUE", "FROM", *(("WHAT IT IS FOR",) if explain else ()))
    rows = [(each.name, each.shown, each.origin, *((each.doc,) if explain else ())) for each in found]
    answer(context, [_document(each) for each in found], lambda: table(headings, rows))


def _document(setting: Setting) -> dict[str, object]:
    value = setting.shown if isinstance(setting.value, str) else setting.value
    return {"name": setting.name, "value": value, "origin": setting.origin, "doc": setting.doc}
