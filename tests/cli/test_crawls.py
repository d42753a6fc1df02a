"""Staying with a crawl: a line that counts while it goes on, and at the end where its items are."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.cli.commanding import Shell, on_a_terminal
from tests.crawls.steering import a_crawl
from tests.items.scene import Spider, lines, start
from tests.runs.acting import submit
from weft.app import App
from weft.spiders.baseline import DriftMark

TEA, COFFEE = {"name": "tea"}, {"name": "coffee"}
STATS: dict[str, Any] = {"response_received_count": 7, "log_count/ERROR": 1}
FOLLOW = ("runs", "log", "1", "--follow")


async def begin(app: App, project: str = "shop") -> Spider:
    """A crawl as if its code had been deployed."""
    spider = await start(app, "drinks", project=project)
    await app.db.transact(lambda tx: tx.connection.exec_driver_sql("UPDATE runs SET kind = 'spider'"))
    return spider


def crawl(shell: Shell, *items: Any, project: str = "shop", outcome: str = "succeeded", **stats: Any) -> None:
    async def crawling(app: App) -> None:
        spider = await begin(app, project)
        await spider.send(lines(items), stats=stats)
        await spider.hand.end(spider.lease, outcome)

    shell.act(crawling)


def told(shell: Shell, run_id: int = 1) -> list[str]:
    return shell("runs", "log", str(run_id), "--follow").err.splitlines()


def test_the_end_says_how_many_items_there_are_and_where(shell: Shell) -> None:
    crawl(shell, TEA, COFFEE)
    assert told(shell) == ["2 items in dataset drinks: `weft items drinks`"]
    assert shell("items", "drinks").code == 0


def test_items_that_were_known_are_told_apart(shell: Shell) -> None:
    crawl(shell, TEA)
    crawl(shell, TEA, COFFEE)
    crawl(shell, COFFEE)
    assert told(shell, 2) == ["2 items (1 of them new) in dataset drinks: `weft items drinks`"]
    assert told(shell, 3) == ["1 item (none of them new) in dataset drinks: `weft items drinks`"]


def test_a_dataset_whose_name_two_projects_have_is_named_with_its_project(shell: Shell) -> None:
    crawl(shell, TEA)
    crawl(shell, TEA, project="mine")
    assert told(shell) == ["1 item in dataset drinks: `weft items shop/drinks`"]


def test_a_crawl_that_succeeded_and_brought_nothing_says_so(shell: Shell) -> None:
    crawl(shell, **STATS)
    assert told(shell) == ["no items", "1 error: `weft runs log 1 --errors`"]
    crawl(shell, outcome="failed")
    assert told(shell, 2) == []


def test_what_was_unusual_is_told(shell: Shell) -> None:
    crawl(shell, TEA)
    text = "1 items; the last 3 runs had 36"

    async def mark(app: App) -> None:
        from weft.spiders import comparer, store

        drift = comparer._text({"marks": [DriftMark("items", text)]})
        await app.db.transact(lambda tx: store.save_comparison(tx, 1, 1, None, drift))

    shell.act(mark)
    assert told(shell)[-1] == f"unusual: {text}"
    assert re.search(rf"^unusual +{text}$", shell.ok("runs", "show", "1").out, re.MULTILINE)


def test_a_run_that_is_no_crawl_is_not_counted(shell: Shell) -> None:
    async def ended(app: App) -> None:
        crawling = await start(app, "drinks")
        await crawling.hand.end(crawling.lease)

    shell.act(ended)
    assert told(shell) == []


def test_a_crawl_is_shown_with_what_it_brought(shell: Shell) -> None:
    crawl(shell, TEA)
    shown = shell.ok("runs", "show", "1").out
    assert re.search(r"^dataset +drinks\nitems +1 item$", shown, re.MULTILINE)


def test_on_a_terminal_a_line_below_the_log_counts(shell: Shell) -> None:
    async def crawling(app: App) -> None:
        await (await begin(app)).send(lines([TEA, COFFEE]), stats=STATS)

    shell.act(crawling)
    _, shown = on_a_terminal("--data-dir", str(shell.folder), *FOLLOW, typed="\x03", after="items, 1 error, ")
    assert re.search(r"\r\x1b\[K7 pages, 2 items, 1 error, [\d.]+ \w+", shown)
    assert "\x1b[K" in shown.rpartition("1 error")[2], "the line is wiped when the command ends"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (("--resource-limit", "memory_bytes"), "--resource-limit is 'memory_bytes'; it must be NAME=VALUE"),
        (("--resource-limit", "items=many"), "--resource-limit items is 'many'; it must be a whole number"),
        (("--resource-limit", "pages=3"), "pages"),
        (("-a", "=1"), "--arg is '=1'; it must be NAME=VALUE"),
    ],
)
def test_a_bad_option_of_a_run_is_named(shell: Shell, given: tuple[str, str], problem: str) -> None:
    crawl(shell, TEA)
    answer = shell("run", "drinks", "--project", "shop", *given)
    assert (answer.code, problem in answer.err) == (2, True), answer.err


def test_whoever_follows_a_paused_run_is_told_how_it_goes_on(shell: Shell) -> None:
    async def following(app: App) -> tuple[str, int]:
        run_id = await submit(app, spec={"spider": "drinks", "resumable": True})
        await app.pauses.pause(run_id)
        process = shell.start(*FOLLOW)
        assert process.stderr is not None
        told = process.stderr.readline()
        await app.runs.cancel(run_id)
        process.communicate(timeout=60)
        return told, process.returncode

    assert shell.act(following) == ("run 1 is paused; `weft runs resume 1` lets it go on\n", 0)


def test_a_command_with_another_frontier_is_refused_and_lists_say_where_the_urls_are(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.act(a_crawl)
    monkeypatch.setenv("WEFT_FRONTIER", "redis://127.0.0.1:1/0")
    refused = shell("crawls", "show", "1")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("crawl 1 keeps its URLs in the database, and this process uses redis://127.0.0.1:1/0")
    assert shell.ok("crawls", "list").lines[1].split()[4:7] == ["?", "?", "?"]
    assert shell.document("crawls", "list")[0]["counts"] is None
