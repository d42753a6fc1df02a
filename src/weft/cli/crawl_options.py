"""What ``weft crawl`` may be told."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.options import number, whole

Texts = list[str] | None

Url = Annotated[Texts, typer.Argument(metavar="[URL]...", help="Where to begin.")]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Crawl what pages link to; without it, only the addresses given.")
]
MaxPages = Annotated[
    int, typer.Option(metavar="N", parser=whole("--max-pages", 0, 2**53), help="How many at most; 0 for all.")
]
PagesPerHost = Annotated[
    int, typer.Option(metavar="N", parser=whole("--pages-per-host", 0, 2**53), help="The same for each host.")
]
MaxSeconds = Annotated[
    float, typer.Option(metavar="S", parser=number("--max-seconds", 0, 31_622_400), help="For how long; 0: no end.")
]
Depth = Annotated[
    int | None, typer.Option(metavar="N", parser=whole("--depth", 0, 1000), help="How many links away; 20.")
]
Delay = Annotated[
    float | None,
    typer.Option(metavar="S", parser=number("--delay", 0, 86_400), help="Between requests to a host; 1."),
]
Within = Annotated[
    str, typer.Option(metavar="WHAT", help="What belongs to it: the host, its domain, the path, or any.")
]
Allow = Annotated[Texts, typer.Option(metavar="REGEX", help="Only addresses that match one of these.")]
Deny = Annotated[Texts, typer.Option(metavar="REGEX", help="No address that matches one of these.")]
Sitemap = Annotated[Texts, typer.Option(metavar="URL", help="A sitemap whose addresses are crawled too.")]
Sitemaps = Annotated[bool, typer.Option("--sitemaps", help="Those that robots.txt names too.")]
FromFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="Addresses to begin with, one a line; - is the standard input.")
]
Contact = Annotated[
    str | None, typer.Option(metavar="WHERE", help="A mail or web address that those crawled can turn to.")
]
NoWarc = Annotated[bool, typer.Option("--no-warc", help="Keep no raw pages.")]
Text = Annotated[bool, typer.Option("--text", help="Keep the text of pages.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Keep their main part as Markdown.")]
Field = Annotated[
    Texts,
    typer.Option(metavar="NAME=css:…", help="A field of the items: NAME[:TYPE]=css:…, xpath:… or jsonpath:…."),
]
Dataset = Annotated[str | None, typer.Option(metavar="NAME", help="Where the pages go; pages unless told.")]
Spec = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="A JSON file with all that a crawl can be told; options go first."),
]
Name = Annotated[str, typer.Option(metavar="NAME", help="What lists call it; its first host unless told.")]
Label = Annotated[Texts, typer.Option(metavar="LABEL", help="A label that its workers must have.")]
Spread = Annotated[
    int, typer.Option(metavar="N", parser=whole("--spread", 0, 1000), help="In how many runs; 0: one each worker.")
]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Begin it and do not stay with it.")]
PauseOnInterrupt = Annotated[
    bool, typer.Option("--pause-on-interrupt", help="Ctrl-C lets the crawl rest, instead of only leaving it.")
]
