"""Proxy plans on the command line."""

from __future__ import annotations

from tests.cli.commanding import Shell
from weft.proxies.model import ProxyTurn, ProxyUsage

PLAN = """
sites = ["*.example"]

[[exits]]
name = "dc1"
url = "http://me:{{secret:DC1}}@proxy.example:3128"
per_request = 0.5
"""


def test_a_plan_is_set_from_a_file_and_tells_where_sites_stand_and_what_it_cost(shell: Shell) -> None:
    file = shell.folder.parent / "ways.toml"
    file.write_text(PLAN)
    assert shell.ok("proxies", "set", "ways", str(file)).out == "proxy plan ways of project default is set: 1 exit\n"
    used = [ProxyUsage("shop.example", "", 0, "hard_block", 2), ProxyUsage("shop.example", "dc1", 1, "ok", 3, 10, 20)]
    shell.act(lambda app: app.proxies.turn("default", ProxyTurn("ways", 1, used)))
    assert "dc1 (cheap)" in shell.ok("proxies", "list").out
    [site] = shell.document("proxies", "show", "ways")["sites"]
    assert (site["site"], site["way"]) == ("shop.example", "cheap")
    [direct, through] = sorted(shell.document("proxies", "spent", "ways", "--by", "exit"), key=lambda row: row["exit"])
    assert (direct["exit"], direct["verdicts"]) == ("", {"hard_block": 2})
    assert (through["exit"], through["cost"], through["verdicts"]) == ("dc1", 1.5, {"ok": 3})
    assert "1.5000" in shell.ok("proxies", "spent", "ways").out
    shell.ok("proxies", "delete", "ways", "--yes")
    assert "has no proxy plan" in shell.ok("proxies", "list").out


def test_a_file_that_is_no_plan_is_refused_in_one_sentence(shell: Shell) -> None:
    file = shell.folder.parent / "ways.toml"
    for text, sentence in (("sites = [", "it must be TOML or JSON"), ("sites = []", "exits"), ("1\n", "TOML")):
        file.write_text(text)
        answer = shell("proxies", "set", "ways", str(file))
        assert (answer.code, sentence in answer.err) == (2, True), answer.err
