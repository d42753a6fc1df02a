"""Items and datasets on the command line."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from tests.cli.commanding import Shell, on_a_terminal
from tests.items.scene import start
from weft.app import App

ITEMS = ({"name": "tea", "price": 3}, {"name": "coffee", "price": 4}, {"name": "red tea", "price": 5})


def crawl(shell: Shell, *items: dict[str, Any], spider: str = "drinks", project: str = "shop", end: bool = True) -> int:
    async def yielding(app: App) -> int:
        crawling = await start(app, spider, project=project)
        await crawling.yields(*items)
        if end:
            await crawling.hand.end(crawling.lease)
        return crawling.run_id

    return shell.act(yielding)


def parsed(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_items_of_a_spider_are_lines_of_json(shell: Shell) -> None:
    crawl(shell, *ITEMS)
    assert parsed(shell.ok("items", "drinks").out) == list(ITEMS)
    assert parsed(shell.ok("items", "shop/drinks", "--limit", "2").out) == list(ITEMS[:2])
    assert json.loads(shell.ok("items", "drinks", "--project", "shop", "--json").out) == list(ITEMS)


def test_items_of_a_run_are_told_from_those_of_its_spider(shell: Shell) -> None:
    first = crawl(shell, *ITEMS[:2])
    second = crawl(shell, *ITEMS[1:])
    assert parsed(shell.ok("items", str(second)).out) == list(ITEMS[1:])
    assert parsed(shell.ok("items", "drinks", "--run", str(first)).out) == list(ITEMS[:2])
    assert len(parsed(shell.ok("items", "drinks").out)) == 3
    assert len(parsed(shell.ok("items", "drinks", "--every").out)) == 4


def test_fields_and_format_are_chosen(shell: Shell) -> None:
    crawl(shell, *ITEMS)
    rows = list(csv.reader(io.StringIO(shell.ok("items", "drinks", "--format", "csv", "--fields", "price").out)))
    assert rows == [["price"], ["3"], ["4"], ["5"]]
    assert shell("items", "drinks", "--format", "xls").code == 2


def test_items_are_chosen_by_their_fields(shell: Shell) -> None:
    crawl(shell, *ITEMS)
    assert parsed(shell.ok("items", "drinks", "--where", "price=4").out) == [ITEMS[1]]
    chosen = shell.ok("items", "drinks", "--contains", "name=tea", "--where", "price=5")
    assert parsed(chosen.out) == [ITEMS[2]]
    assert "it must be FIELD=VALUE" in shell("items", "drinks", "--where", "price").err
    assert "named once" in shell("items", "drinks", "--where", "price=4", "--where", "price=5").err


def test_on_a_terminal_items_are_a_table(shell: Shell) -> None:
    crawl(shell, {"name": "tea\x1b[31m", "price": 3})
    _, shown = on_a_terminal("--data-dir", str(shell.folder), "items", "drinks")
    assert "\\x1b[31m" in shown
    assert shown.split()[:2] == ["name", "price"]


def test_a_name_that_is_no_dataset_is_told_with_those_that_are(shell: Shell) -> None:
    crawl(shell, *ITEMS)
    answer = shell("items", "drink")
    assert (answer.code, answer.err) == (1, "there is no dataset drink; there are shop/drinks\n")
    assert "it has drinks" in shell("items", "shop/drink").err


def test_a_name_in_two_projects_asks_for_one(shell: Shell) -> None:
    crawl(shell, *ITEMS)
    crawl(shell, *ITEMS, project="other")
    answer = shell("items", "drinks")
    assert answer.code == 2
    assert answer.err == "dataset drinks: several projects have it (other, shop); name one with --project\n"


@pytest.mark.parametrize("words", [("items", "drinks", "--attempt", "1"), ("items", "drinks", "--follow")])
def test_what_only_a_run_has_is_not_asked_of_a_spider(shell: Shell, words: tuple[str, ...]) -> None:
    crawl(shell, *ITEMS)
    assert shell(*words).code == 2


def test_an_attempt_that_was_not_is_refused(shell: Shell) -> None:
    run_id = crawl(shell, *ITEMS)
    assert "has had 1 attempts" in shell("items", str(run_id), "--attempt", "7").err
    assert len(parsed(shell.ok("items", str(run_id), "--attempt", "all").out)) == 3


def test_a_run_is_followed_until_it_has_ended(shell: Shell) -> None:
    run_id = crawl(shell, ITEMS[0], end=False)
    following = shell.start("items", str(run_id), "--follow")
    assert following.stdout is not None
    assert json.loads(following.stdout.readline()) == ITEMS[0]
    shell.ok("runs", "cancel", str(run_id))

    async def yield_more_and_end(app: App) -> None:
        from tests.items.scene import lines
        from tests.runs.acting import Hand
        from weft.items.model import ItemBatch
        from weft.runs.model import Ending

        run = await app.runs.get(run_id)
        hand = await Hand.join(app, run.worker or "")
        await app.protocol.collect(hand.id, [ItemBatch(run_id, run.attempt, 2, lines(ITEMS[1:]))])
        await app.leases.finish(1, [Ending(run_id, run.attempt, "cancelled")])

    shell.act(yield_more_and_end)
    out, err = following.communicate(timeout=60)
    assert (parsed(out), err, following.returncode) == (list(ITEMS[1:]), "", 0)


def test_a_dataset_shows_what_is_in_it(shell: Shell) -> None:
    run_id = crawl(shell, *ITEMS)
    assert "shop" in shell.ok("datasets", "list").out
    shown = shell.document("datasets", "show", "drinks")
    assert (shown["dataset"]["records"], shown["dataset"]["items"]) == (3, 3)
    assert "100%" in shell.ok("datasets", "show", "drinks").out
    assert len(shell.document("datasets", "records", "drinks", "--new-in", str(run_id))) == 3
    assert shell.document("datasets", "records", "drinks", "--changed-in", str(run_id)) == []
    assert "coffee" in shell.ok("datasets", "records", "drinks", "--where", "name=coffee").out


def test_key_fields_and_schema_are_set_one_by_one(shell: Shell) -> None:
    schema = shell.folder.parent / "schema.json"
    schema.write_text('{"required": ["name"]}')
    shell.ok("datasets", "set", "shop/drinks", "--key-fields", "name, price")
    shell.ok("datasets", "set", "shop/drinks", "--schema", str(schema))
    (found,) = shell.document("datasets", "list")
    assert (found["key_fields"], found["schema"]) == (["name", "price"], {"required": ["name"]})
    shell.ok("datasets", "set", "shop/drinks", "--key-fields", "", "--no-schema")
    (found,) = shell.document("datasets", "list")
    assert (found["key_fields"], found["schema"]) == ([], None)
    schema.write_text("nonsense")
    assert shell("datasets", "set", "shop/drinks", "--schema", str(schema)).code == 2
