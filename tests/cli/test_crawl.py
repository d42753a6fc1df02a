"""``weft crawl`` and ``weft crawls``: what is asked for, and what is told of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.cases import for_each
from tests.cli.commanding import WEFT, Shell, environment, on_a_terminal
from tests.crawls.exchanges import check_fits, keep_pages
from tests.crawls.steering import SITE, SKIPS, Share
from weft.app import App
from weft.cli import crawls as beginning
from weft.cli.crawl_progress import InterruptSignal
from weft.clock import SECOND, now
from weft.crawler.messages import Skip
from weft.fetching.urls import host_of, key_of
from weft.ports import DONE, SKIPPED, Found, HostReport, Outcome, Turn

CONTACT = ("--contact", "us@weft.example")
SILENT = '{"trouble": "does not answer (connection refused)"}'
HOUR = 3_600 * SECOND
BEGIN = ("crawl", SITE, "--follow-links", *CONTACT, "--detach")


async def fetched(app: App) -> None:
    partition = await Share.of(app, await app.crawls.get(1))
    await partition.fetch(pages=3, failed=1, skips=SKIPS)


async def ended(app: App, skips: Sequence[Skip] = ()) -> None:
    """Fetch all there is, so that the crawl is done."""
    partition = await Share.of(app, await app.crawls.get(1))
    turned = await partition.turn()
    [host] = partition.hosts
    outcomes = [Outcome(each.key, DONE, status=200, size=1_500_000, fetched_at=1) for each in host.urls]
    report = HostReport(host.host, host.fence, outcomes, release=True)
    turned = await partition.turn(Turn(reports=[report], hosts=1), skips)
    assert turned.stop == "done"
    await partition.hand.end(partition.lease)


def test_text_without_its_extra_is_refused_by_one_sentence(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "turbohtml", None)
    refused = shell("crawl", SITE, "--text", *CONTACT, "--detach")
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert "pip install 'weft[text]'" in refused.err
    assert shell.document("runs", "list") == []


def test_what_was_asked_for_is_what_the_crawl_is_told(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "urls.txt").write_text(f"# more\n{SITE}a\n\n{SITE}b\n")
    fields = (
        "--extract",
        "price:number=css:.price",
        "--extract",
        "next=css:a.next@href",
        "--extract",
        "sku=jsonpath:$.sku",
    )
    options = (
        "--max-pages",
        "50",
        "--depth",
        "3",
        "--delay",
        "0",
        "--within",
        "domain",
        "--deny",
        r"\.pdf$",
        "--no-warc",
    )
    rest = ("--text", "--from-file", str(tmp_path / "urls.txt"), "--spread", "2", "--name", "mine", "--robots-sitemaps")
    shell.document("crawl", "site.example", "--follow-links", *CONTACT, "--detach", *options, *rest, *fields)
    spec = shell.document("crawls", "show", "1")["spec"]
    assert spec == {
        "urls": ["https://site.example", f"{SITE}a", f"{SITE}b"],
        "follow": True,
        "spread": 2,
        "scope": {"within": "domain", "deny": [r"\.pdf$"], "depth": 3, "sitemaps": True},
        "budget": {"pages": 50},
        "politeness": {"delay_seconds": 0.0},
        "fetching": {"contact": "us@weft.example"},
        "keeping": {
            "text": True,
            "warc": False,
            "fields": {
                "price": {"css": ".price", "type": "number"},
                "next": {"css": "a.next", "attribute": "href"},
                "sku": {"jsonpath": "$.sku"},
            },
        },
    }


def test_a_crawl_may_be_told_to_go_no_link_away(shell: Shell) -> None:
    shell(*BEGIN, "--depth", "0")
    assert shell.document("crawls", "show", "1")["spec"]["scope"] == {"depth": 0}


@for_each(
    ("words", "said"),
    [
        ((SITE,), "fetching.contact: those who are crawled must be able to reach somebody; give a mail or web"),
        ((SITE,), "(--contact), or set crawl_contact once for all crawls"),
        (("gopher://x.example", *CONTACT), "it must be an http or https address"),
        ((SITE, *CONTACT, "--extract", "x=y"), "it must be NAME=css:…, NAME=xpath:… or NAME=jsonpath:…"),
        ((SITE, *CONTACT, "--within", "world"), "--within is 'world'; it must be one of host, domain, path, any"),
        (
            (SITE, *CONTACT, "--extract", "x:money=css:b"),
            "the type in --extract is 'money'; it must be one of text, number",
        ),
        (CONTACT, "crawl.urls: it must have at least one address to begin with"),
        (("notaurl", *CONTACT), "URL is 'notaurl'; it must be an address, such as https://site.example; before"),
        (("intranet:8080/x.html", *CONTACT), "URL is 'intranet:8080/x.html'; it must be an address"),
    ],
)
def test_what_cannot_be_crawled_is_refused(shell: Shell, words: tuple[str, ...], said: str) -> None:
    answer = shell("crawl", *words)
    assert answer.code == 2
    assert said in answer.err


@pytest.mark.parametrize(
    ("typed", "taken"),
    [
        ("site.example/a?b=c", "https://site.example/a?b=c"),
        ("http://intranet", "http://intranet"),
        ("192.0.2.7:8000", "https://192.0.2.7:8000"),
        ("localhost:8000/x", "https://localhost:8000/x"),
        ("[2001:db8::7]/", "https://[2001:db8::7]/"),
    ],
)
def test_what_a_person_types_is_https_where_nothing_else_is_said(typed: str, taken: str) -> None:
    assert beginning._seed_url(typed) == taken


def test_a_reason_that_there_is_not_is_refused_with_those_that_there_are(shell: Shell) -> None:
    shell(*BEGIN)
    refused = shell("crawls", "skips", "1", "--reason", "foo")
    assert refused.err == "reason is 'foo'; there is none of that name, and crawl 1 has left out nothing yet\n"
    shell.act(fetched)
    refused = shell("crawls", "skips", "1", "--reason", "foo")
    assert (refused.code, refused.err) == (
        *(2,),
        "reason is 'foo'; there is none of that name, and crawl 1 has calendar, robots, scope\n",
    )
    assert "nothing was left out" in shell.ok("crawls", "skips", "1", "--reason", "depth").out
    assert "robots.txt does not allow it" in shell.ok("crawls", "skips", "1", "--reason", "robots").out


def test_a_file_of_many_addresses_is_whole_before_the_crawl_goes_on(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beginning, "MOST_SEEDS", 3)
    monkeypatch.setattr(beginning, "PER_CALL", 2)
    (tmp_path / "urls.txt").write_text("".join(f"{SITE}{number}\n" for number in range(10)))
    assert shell("crawl", "--from-file", str(tmp_path / "urls.txt"), *CONTACT, "--detach").code == 0
    report = shell.document("crawls", "show", "1")
    assert (report["crawl"]["state"], report["counts"]["queued"], len(report["partitions"])) == ("active", 7, 1)


def test_crawls_are_listed_paused_resumed_and_stopped(shell: Shell) -> None:
    assert "no crawls match these filters" in (shell(*BEGIN).out + shell("crawls", "list", "--state", "done").out)
    assert "rests" in shell.ok("crawls", "pause", "1").out
    assert [each["state"] for each in shell.document("crawls", "list")] == ["paused"]
    assert "goes on" in shell.ok("crawls", "resume", "1").out
    assert "is stopped" in shell.ok("crawls", "stop", "1").out
    assert shell("crawls", "pause", "1").code == 1
    assert "is forgotten" in shell.ok("crawls", "delete", "1", "--yes").out
    assert shell("crawls", "show", "1").err == "there is no crawl 1\n"


def test_a_shell_that_is_set_to_another_frontier_is_refused_and_never_shows_zeros(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell(*BEGIN)
    shell.act(fetched)
    monkeypatch.setenv("WEFT_FRONTIER", "redis://127.0.0.1:1/0")
    said = "crawl 1 keeps its URLs in the database, and this process uses redis://127.0.0.1:1/0: set frontier"
    for command in (("show", "1"), ("urls", "1"), ("hosts", "1"), ("requeue", "1"), ("why", "1", SITE)):
        answer = shell("crawls", *command)
        assert (answer.code, answer.out, answer.err.startswith(said)) == (1, "", True), (command, answer)
    listed = shell.ok("crawls", "list").lines[1]
    assert ("active  ?      ?       ?" in listed, "its URLs are in the database" in listed) == (True, True)
    assert shell.document("crawls", "list")[0]["counts"] is None
    monkeypatch.delenv("WEFT_FRONTIER")
    assert "3 done, 1 failed" in shell.ok("crawls", "show", "1").out


def test_what_became_of_addresses_is_told(shell: Shell) -> None:
    shell(*BEGIN)
    shell.act(fetched)
    assert "3 done, 1 failed" in shell.ok("crawls", "show", "1").out
    assert shell.ok("crawls", "hosts", "1").lines[1].split()[:3] == ["site.example", "3", "1"]
    [failed] = shell.document("crawls", "urls", "1", "--state", "failed")
    assert failed["reason"] == "status_500"
    assert shell.ok("crawls", "why", "1", failed["url"]).out == (
        "it failed and is not tried again: the server answered with status 500\n"
    )
    assert "/calendar/{number}" in shell.ok("crawls", "skips", "1", "--suspected").out
    assert shell.ok("crawls", "requeue", "1").out == "1 address of crawl 1 is in line again; it goes on\n"
    assert "no address of crawl 1 is failed" in shell.ok("crawls", "requeue", "1").out
    assert shell("crawls", "urls", "1", "--state", "lost").code == 2


def test_the_list_tells_how_far_each_crawl_is(shell: Shell) -> None:
    shell(*BEGIN)
    shell.act(fetched)
    shell(*BEGIN, "--name", "idle")
    heading, idle, busy = (line.split() for line in shell.ok("crawls", "list").lines)
    assert heading[3:7] == ["STATE", "PAGES", "QUEUED", "FAILED"]
    assert [idle[2:7], busy[2:7]] == [["idle", "active", "0", "0", "0"], ["site.example", "active", "3", "0", "1"]]
    assert [each["counts"]["done"] for each in shell.document("crawls", "list")] == [0, 3]


def test_addresses_are_listed_page_by_page_with_a_sentence_for_each(shell: Shell) -> None:
    shell(*BEGIN)
    shell.act(fetched)
    assert shell.ok("crawls", "urls", "1", "--state", "failed").lines[1].endswith("the server answered with status 500")
    keys = [each["key"] for each in shell.document("crawls", "urls", "1")]
    first = shell("crawls", "urls", "1", "--limit", "2")
    assert (len(first.lines), first.err) == (3, f"there are more: --after {keys[1]}\n")
    assert [each["key"] for each in shell.document("crawls", "urls", "1", "--after", keys[1])] == keys[2:]
    assert shell("crawls", "urls", "1", "--after", keys[1], "--limit", "2").err == ""


def test_a_crawl_that_is_done_is_told_with_what_it_brought(shell: Shell) -> None:
    shell(*BEGIN)
    shell.act(ended)
    answer = shell.ok("crawls", "follow", "1")
    assert answer.lines[0] == "crawl 1 is done: nothing is left"
    assert answer.lines[1].startswith("1 page in ")
    assert "1.5 MB, 1 host" in answer.lines[1]
    assert "`weft crawls export 1 --warc --output site.warc.gz`" in answer.lines[-1]


async def ended_with_suspects(app: App, skips: Sequence[Skip] = ()) -> None:
    """Fetch one of two pages; the other is skipped on suspicion."""
    partition = await Share.of(app, await app.crawls.get(1))
    turned = await partition.turn(
        Turn(found=[Found(key_of(f"{SITE}day/9"), f"{SITE}day/9", host_of(SITE), 1)], hosts=10)
    )
    [host] = partition.hosts
    outcomes = [
        Outcome(each.key, DONE, status=200, fetched_at=1)
        if each.url == SITE
        else Outcome(each.key, SKIPPED, "calendar")
        for each in host.urls
    ]
    skip = Skip("calendar", host_of(SITE), "/day/{number}", f"{SITE}day/9", 1, is_trap=True)
    turned = await partition.turn(
        Turn(reports=[HostReport(host.host, host.fence, outcomes, release=True)], hosts=1), [skip, *skips]
    )
    assert turned.stop == "done"
    await partition.hand.end(partition.lease)


def test_a_crawl_that_skipped_pages_on_suspicion_says_so_first_and_exits_with_3(shell: Shell) -> None:
    shell(*BEGIN, "--traps", "strict")
    shell.act(ended_with_suspects)
    answer = shell("crawls", "follow", "1")
    assert answer.lines[0] == (
        "crawl 1 is done: nothing is left; 1 page was skipped on suspicion of a trap; "
        "`weft crawls requeue 1 --state skipped` fetches them"
    )
    assert answer.code == 3
    shown = shell.document("crawls", "show", "1")
    assert (shown["suspected"], shown["spec"]["traps"]) == (1, {"level": "strict"})
    assert shown["crawl"]["reason"] == "nothing is left; 1 page was skipped on suspicion of a trap"
    assert "1 address of crawl 1 is in line again" in shell.ok("crawls", "requeue", "1", "--state", "skipped").out
    shown = shell.document("crawls", "show", "1")
    assert (shown["suspected"], shown["skips"], shown["counts"]["queued"]) == (0, [], 1)


DROPPED = [
    Skip("links_per_page", host_of(SITE), example=SITE, count=1_212),
    Skip("scope", "cdn.example", example="https://cdn.example/logo.svg", count=9),
]


@pytest.mark.parametrize(
    ("skips", "first", "code"),
    [
        (
            DROPPED,
            "; 1,212 links were not kept; to fetch them, start a new crawl: raise traps.links_per_page (--spec-file)",
            3,
        ),
        (
            [Skip("link_length", host_of(SITE), example=SITE, count=1)],
            "; 1 link was not kept; no crawl can fetch them: they are longer than an address may be",
            3,
        ),
        (
            [*DROPPED, Skip("suspects", host_of(SITE), "/{number}", SITE, 2, is_trap=True)],
            "; 1,214 links were not kept; to fetch them, start a new crawl: set traps.level to off (--traps off); "
            "raise traps.links_per_page (--spec-file)",
            3,
        ),
        (DROPPED[1:], "", 0),
    ],
)
def test_a_crawl_whose_links_were_dropped_says_so_first_and_exits_with_3(
    shell: Shell, skips: list[Skip], first: str, code: int
) -> None:
    shell(*BEGIN)
    shell.act(partial(ended, skips=skips))
    answer = shell("crawls", "follow", "1")
    assert (answer.lines[0], answer.code) == (f"crawl 1 is done: nothing is left{first}", code)
    shown = shell.document("crawls", "show", "1")
    kept = [each for each in skips if each.reason != "scope"]
    assert {each["reason"]: each["count"] for each in shown["not_kept"]} == {each.reason: each.count for each in kept}
    assert shown["suspected"] == 0
    assert shown["crawl"]["reason"] == "; ".join(answer.lines[0].partition(": ")[2].split("; ")[: 2 if kept else 1])


@pytest.mark.parametrize(("depth", "code"), [(("--depth", "2"), 0), ((), 3)])
def test_a_depth_that_somebody_chose_makes_no_crawl_incomplete(shell: Shell, depth: Sequence[str], code: int) -> None:
    shell(*BEGIN, *depth)
    shell.act(partial(ended, skips=[Skip("depth", host_of(SITE), example=SITE, count=7)]))
    answer = shell("crawls", "follow", "1")
    assert answer.code == code
    assert ("7 links were not kept" in answer.lines[0]) == bool(code)


def test_pages_that_are_suspected_and_links_that_were_dropped_are_told_together(shell: Shell) -> None:
    shell(*BEGIN)
    shell.act(partial(ended_with_suspects, skips=DROPPED))
    answer = shell("crawls", "follow", "1")
    assert (answer.code, answer.lines[0]) == (
        3,
        "crawl 1 is done: nothing is left; 1 page was skipped on suspicion of a trap; 1,212 links were not kept; "
        "`weft crawls requeue 1 --state skipped` fetches the pages; "
        "to fetch the links, start a new crawl: raise traps.links_per_page (--spec-file)",
    )
    assert "incomplete" in shell.ok("crawls", "show", "1").out


def test_a_level_of_traps_that_there_is_not_is_refused(shell: Shell) -> None:
    answer = shell(*BEGIN, "--traps", "paranoid")
    assert (answer.code, answer.err) == (2, "--traps is 'paranoid'; it must be one of off, normal, strict\n")


async def silent(app: App) -> None:
    """Find that the host of crawl 1 does not answer, and leave it alone for an hour."""
    partition = await Share.of(app, await app.crawls.get(1))
    await partition.turn()
    [host] = partition.hosts
    report = HostReport(host.host, host.fence, next_at=now() + HOUR, state=SILENT, release=True)
    await partition.turn(Turn(reports=[report]))


def test_a_host_that_does_not_answer_is_told_while_one_stays_with_its_crawl(shell: Shell) -> None:
    shell(*BEGIN)
    shell.act(silent)
    staying = ("--data-dir", str(shell.folder), "crawls", "follow", "1")
    _, shown = on_a_terminal(*staying, typed="\x03", after="asked again at")
    assert "site.example does not answer (connection refused); asked again at" in shown
    assert "does not answer (connection refused)" in shell.ok("crawls", "hosts", "1").out
    shell("crawls", "stop", "1")


def test_a_crawl_that_rests_ends_its_view_with_a_hint(shell: Shell) -> None:
    shell(*BEGIN)
    shell("crawls", "pause", "1")
    answer = shell("crawls", "follow", "1")
    assert answer.code == 1
    assert answer.out.startswith("crawl 1 is paused")
    assert "`weft crawls resume 1` resumes it" in answer.err


def test_raw_files_and_items_are_exported(shell: Shell, tmp_path: Path) -> None:
    shell(*BEGIN)

    shell.act(lambda app: keep_pages(app.blobs, 1, tmp_path))
    printed = {kind: tmp_path / f"crawl-1.{kind}" for kind in ("warc.gz", "cdxj")}
    for option, file in zip(("--warc", "--cdxj"), printed.values(), strict=True):
        with file.open("wb") as output:
            command = [WEFT, "--data-dir", str(shell.folder), "crawls", "export", "1", option]
            subprocess.run(command, env=environment(), stdout=output, check=True)
    check_fits(printed["cdxj"].read_bytes(), {"crawl-1.warc.gz": printed["warc.gz"].read_bytes()}, 6)
    assert json.loads(shell.ok("crawls", "export", "1", "--format", "json").out) == []


def test_raw_files_are_written_with_their_index_beside_them(shell: Shell, tmp_path: Path) -> None:
    shell(*BEGIN)
    shell.act(lambda app: keep_pages(app.blobs, 1, tmp_path))
    said = shell("crawls", "export", "1", "--warc", "--output", "site.warc.gz")
    assert said.err == "site.warc.gz has the raw exchanges of crawl 1, site.cdxj their index\n"
    check_fits(Path("site.cdxj").read_bytes(), {"site.warc.gz": Path("site.warc.gz").read_bytes()}, 6)
    refused = shell("crawls", "export", "1", "--cdxj", "--output", "site.cdxj")
    assert refused.err == "--output is 'site.cdxj'; it goes with --warc; anything else is printed\n"


def test_a_field_that_no_page_has_is_refused_with_those_that_there_are(shell: Shell) -> None:
    shell(*BEGIN, "--markdown", "--extract", "price=css:.price")
    assert shell("crawls", "export", "1", "--fields", "url,price,markdown").code == 0
    refused = shell("crawls", "export", "1", "--fields", "url,nope")
    assert (refused.code, refused.out, refused.err) == (
        *(2, ""),
        "--fields is 'nope'; the pages of crawl 1 have url, status, title, description, content_type, fetched_at, "
        "links, markdown, price\n",
    )


def test_a_crawl_without_raw_files_says_why_it_has_none(shell: Shell) -> None:
    shell(*BEGIN)
    shell(*BEGIN, "--no-warc")
    assert "has no WARC file yet" in shell("crawls", "export", "1", "--warc").err
    for option in ("--warc", "--cdxj"):
        assert shell("crawls", "export", "2", option).err == "crawl 2 keeps no raw pages: it was told not to\n"


@pytest.mark.parametrize(
    ("option", "state", "code", "said"),
    [((), "active", 130, "attaches again"), (("--pause-on-interrupt",), "paused", 1, "resumes it")],
)
def test_ctrl_c_leaves_a_crawl_or_lets_it_rest(
    shell: Shell, option: tuple[str, ...], state: str, code: int, said: str
) -> None:
    begun = ("--data-dir", str(shell.folder), "crawl", SITE, "--follow-links", *CONTACT, *option)
    ended_with, shown = on_a_terminal(*begun, typed="\x03", after="waits for a worker")
    assert said in shown
    assert ended_with == code
    assert shell.document("crawls", "list")[0]["state"] == state


async def test_ctrl_c_counts_as_often_as_it_is_pressed() -> None:
    with InterruptSignal() as interrupts:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            assert await interrupts.within(30)
        assert not await interrupts.within(0.01)


def test_a_new_crawl_is_in_the_audit_log_as_the_api_names_it(shell: Shell) -> None:
    shell.ok(*BEGIN)
    [entry] = shell.document("audit", "list")
    assert entry["action"] == "crawls.create"
