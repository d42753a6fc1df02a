"""A run from its order to its end: what is in its folder, what its process says when it exits."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.agent.spiders import SETTINGS, SHARED, write_project
from tests.agent.starting import Zygote, run_cold, zygote
from tests.waiting import eventually


def wait_for(reads: int, word: bytes) -> bytes:
    seen = b""
    while word not in seen:
        chunk = os.read(reads, 1 << 16)
        assert chunk, f"the pipe ended without {word!r}: {seen!r}"
        seen += chunk
    return seen


def test_a_forked_run_leaves_items_stats_and_its_end(warm: Zygote) -> None:
    run = warm.run("few", args={"count": "2", "colour": "blue"})

    assert run.exit_code == 0
    assert run.items == [{"n": 0, "colour": "blue"}, {"n": 1, "colour": "blue"}]
    assert run.end == {"reason": "finished", "outcome": "", "message": ""}
    assert run.stats["stats"]["item_scraped_count"] == 2
    assert run.stats["isolation"] == "L0"
    assert run.stats["memory_bytes"] > 0
    assert run.answer["cpu_seconds"] > 0
    assert run.answer["max_rss_bytes"] > 0


def test_a_cold_run_leaves_the_same_as_a_forked_one(warm: Zygote, code: Path, tmp_path: Path) -> None:
    cold, forked = run_cold(code, tmp_path / "run", "few"), warm.run("few")

    assert cold.exit_code == 0
    assert cold.items == forked.items
    assert cold.end == forked.end
    assert cold.stats["stats"].keys() == forked.stats["stats"].keys()


def test_the_order_is_gone_once_it_is_read(warm: Zygote) -> None:
    assert not (warm.run("few").folder / "order.json").exists()


def test_a_spider_that_is_not_there_fails_with_the_names_of_those_that_are(warm: Zygote) -> None:
    run = warm.run("fewer")

    assert run.exit_code == 1
    assert run.end["reason"] == "failed"
    assert run.end["message"].startswith("the project has no spider 'fewer'; it has few, long, odd")


@pytest.mark.parametrize(
    ("spider", "order", "message"),
    [
        ("few", {"args": {"count": "many"}}, "ValueError: invalid literal for int() with base 10: 'many'"),
        ("strict", {"args": {}}, "missing 1 required positional argument: 'town'"),
        ("strict", {"args": {"town": "a", "height": "5"}}, "unexpected keyword argument 'height'"),
        ("few", {"settings": {"STATS_CLASS": "shop.missing.Stats"}}, "No module named 'shop.missing'"),
        ("few", {"settings": {"ITEM_PIPELINES": {"shop.missing.P": 1}}}, "No module named 'shop.missing'"),
    ],
)
def test_a_spider_that_cannot_be_made_fails_and_its_log_has_the_traceback(
    warm: Zygote, spider: str, order: dict[str, object], message: str
) -> None:
    run = warm.run(spider, **order)

    assert run.exit_code == 1
    assert message in run.end["message"]
    errors = [record["exception"] for record in run.records if record["level"] == "ERROR" and "exception" in record]
    assert any(message in error and "Traceback" in error for error in errors)


def test_settings_that_raise_end_a_cold_run_with_their_error(tmp_path: Path) -> None:
    code = write_project(tmp_path / "code", settings="raise LookupError('no database today')")
    run = run_cold(code, tmp_path / "run", "few")

    assert run.exit_code == 1
    assert run.end["message"] == "LookupError: no database today"


def test_a_spider_that_closes_by_its_own_conditions_has_not_failed(warm: Zygote) -> None:
    run = warm.run("few", args={"count": "500"}, settings={"CLOSESPIDER_ITEMCOUNT": "2"})

    assert run.exit_code == 0
    assert run.end["reason"] == "closespider_itemcount"


def test_a_signal_closes_the_spider_gracefully(warm: Zygote) -> None:
    run, reads = warm.begin("long")
    run.output = wait_for(reads, b"asleep")
    os.kill(run.pid, signal.SIGTERM)
    warm.finish(run, reads)

    assert run.exit_code == 0
    assert run.end["reason"] == "shutdown"
    assert run.items == [{"n": 1}]


def test_a_second_signal_ends_a_spider_that_will_not_close(warm: Zygote) -> None:
    run, reads = warm.begin("stubborn")
    run.output = wait_for(reads, b"asleep")
    os.kill(run.pid, signal.SIGTERM)
    run.output += wait_for(reads, b"Received SIGTERM")
    os.kill(run.pid, signal.SIGTERM)
    warm.finish(run, reads)

    assert run.exit_code == 0
    assert run.end["reason"] == "shutdown"


def test_what_a_spider_yielded_outlives_its_kill(warm: Zygote) -> None:
    run, reads = warm.begin("long")
    run.output = wait_for(reads, b"asleep")
    os.kill(run.pid, signal.SIGKILL)
    warm.finish(run, reads)

    assert run.exit_code == -signal.SIGKILL
    assert run.items == [{"n": 1}]
    assert not (run.folder / "end.json").exists()


@pytest.mark.parametrize(
    ("setting", "reactor"),
    [
        ("twisted.internet.asyncioreactor.AsyncioSelectorReactor", "AsyncioSelectorReactor"),
        ("twisted.internet.selectreactor.SelectReactor", "SelectReactor"),
    ],
)
def test_a_run_has_the_reactor_that_its_settings_name(warm: Zygote, setting: str, reactor: str) -> None:
    assert warm.run("reactors", settings={"TWISTED_REACTOR": setting}).items == [{"reactor": reactor}]


def test_a_run_without_a_reactor_leaves_items_too(warm: Zygote) -> None:
    run = warm.run("few", settings={"TWISTED_REACTOR_ENABLED": False})

    assert run.end["reason"] == "finished"
    assert len(run.items) == 3


def test_a_run_finds_who_it_is_and_where_it_goes_on(warm: Zygote, tmp_path: Path) -> None:
    names = "SCRAPY_JOB SCRAPY_PROJECT SCRAPY_SPIDER"
    (found,) = warm.run("world", args={"names": names}, project="shop", jobdir=str(tmp_path / "kept")).items

    assert (found["SCRAPY_JOB"], found["SCRAPY_PROJECT"], found["SCRAPY_SPIDER"]) == ("r7", "shop", "world")
    assert found["jobdir"] == str(tmp_path / "kept")
    assert (tmp_path / "kept" / "requests.queue").exists()


def test_variables_of_a_run_reach_settings_and_modules_that_read_them_at_import(warm: Zygote) -> None:
    (found,) = warm.run("world", args={"names": "GREETING"}, env={"GREETING": "good morning"}).items
    (next_one,) = warm.run("world", args={"names": "GREETING"}).items

    assert (found["GREETING"], found["at_import"], found["in_settings"]) == ("good morning",) * 3
    assert (next_one["GREETING"], next_one["at_import"], next_one["in_settings"]) == (None, "none", "none")


def test_a_project_that_shares_its_modules_is_imported_again_for_other_variables_only(tmp_path: Path) -> None:
    code = write_project(tmp_path / "code", settings=SHARED)
    usual = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "WEFT_VERSION": "1.0"}

    with zygote(code, tmp_path) as whole:
        assert not whole.run("world", env=usual).items[0]["imported_here"]
        (found,) = whole.run("world", env={**usual, "GREETING": "hello"}).items
    assert found["imported_here"]
    assert (found["at_import"], found["in_settings"]) == ("hello", "hello")


def test_settings_that_name_the_run_know_it_in_a_forked_run_too(tmp_path: Path) -> None:
    naming = 'import os\nFEEDS = {os.environ.get("SCRAPY_JOB", "nobody") + ".jl": {"format": "jl"}}\n'
    code = write_project(tmp_path / "code", settings=SETTINGS + naming)
    with zygote(code, tmp_path) as warm:
        run = warm.run("few")

    assert [path.name for path in (run.folder / "files").iterdir()] == ["r7.jl"]


async def test_stats_are_renewed_while_the_spider_runs(warm: Zygote) -> None:
    run, reads = warm.begin("long")
    run.output = wait_for(reads, b"asleep")
    first = run.stats["at"]
    await eventually(lambda: run.stats["at"] > first)
    seen = run.stats["stats"]
    os.kill(run.pid, signal.SIGTERM)
    warm.finish(run, reads)

    assert seen["item_scraped_count"] == 1
    assert "finish_reason" not in seen
    assert run.stats["stats"]["finish_reason"] == "shutdown"


def test_nobody_is_let_into_a_run_unless_its_order_asks(warm: Zygote) -> None:
    (closed,), asked = warm.run("world").items, warm.run("world", settings={"TELNETCONSOLE_ENABLED": True})

    assert not closed["telnet"]
    assert asked.items[0]["telnet"]
    assert any("Telnet console listening" in record["message"] for record in asked.records)


def test_the_projects_own_feeds_are_written_beside_the_items(warm: Zygote) -> None:
    run = warm.run("few", settings={"FEEDS": {"out.csv": {"format": "csv"}}})

    assert (run.folder / "files" / "out.csv").read_text().splitlines()[0] == "n,colour"
    assert len(run.items) == 3


def test_an_add_on_may_bring_spiders(tmp_path: Path) -> None:
    code = write_project(tmp_path / "code", settings='ADDONS = {"shop.addons.More": 1}')
    (code / "shop" / "addons.py").write_text(
        "class More:\n"
        "    @classmethod\n"
        "    def update_pre_crawler_settings(cls, settings):\n"
        "        settings.set('SPIDER_MODULES', ['shop.spiders'], 'addon')\n"
    )
    with zygote(code, tmp_path) as warm:
        assert "few" in warm.first["spiders"]
        assert len(warm.run("few").items) == 3
