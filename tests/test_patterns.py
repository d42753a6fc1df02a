"""Patterns of users take time that grows with the text, wherever one can be given."""

from __future__ import annotations

import msgspec
import pytest

from tests.crawls.exchanges import exchange
from weft import crawl_spec
from weft.cli.runs import record_filter
from weft.crawl_spec import FieldSpec
from weft.crawler.fields import FieldExtractor, FieldSource
from weft.crawler.scope import ScopeFilter
from weft.errors import Invalid
from weft.fetching.urls import Canonicalizer
from weft.logs.records import LogRecord
from weft.logs.search import LogQuery
from weft.patterns import compiled
from weft.proxies import model
from weft.proxies.escalation import verdict_of

SITE = "http://a.example/"
SLOW, TEXT = "(a+)+$", "a" * 60 + "!"


def test_a_pattern_is_found_anywhere_or_in_all_of_a_text() -> None:
    assert compiled("b+").is_in("abba")
    assert compiled("b+").is_in(b"abba")
    assert not compiled("b+").is_all_of("abba")
    assert compiled("[ab]+").is_all_of("abba")
    assert compiled("^é.$").is_in("éü")
    assert compiled("(?i)STRASSE").is_in("strasse")
    assert not compiled(SLOW).is_in(TEXT * 1000)
    assert compiled("x").is_in("\udc80x")


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("ab(?=c)", r"without look-ahead \(\(\?= at character 3\): say what must be there"),
        ("ab(?!c)", r"without look-ahead \(\(\?! at character 3\)"),
        ("(?<=a)b", r"without look-behind \(\(\?<= at character 1\): match the text before it as well"),
        ("(?<!a)b", r"without look-behind \(\(\?<! at character 1\)"),
        (r"(a)\1", r"without back-reference \(\\1 at character 4\): write out what may be repeated"),
        (r"(?P<x>a)(?P=x)", r"without back-reference \(\(\?P= at character 9\)"),
        ("(?>a)", r"without atomic group \(\(\?> at character 1\): write a plain group"),
        ("a++", r"without possessive repetition \(\+\+ at character 2\): write \+"),
        (r"a\Z", r"without anchor \(\\Z at character 2\): write \\z"),
        ("(a", r"a regular expression of RE2 \(missing \): \(a\); see docs/reference/patterns.md"),
        (".{1000}", "a smaller pattern: it has 8,004 steps, and 5,000 are allowed"),
    ],
)
def test_what_the_engine_lacks_is_named_with_its_place_and_what_to_do(pattern: str, said: str) -> None:
    with pytest.raises(Invalid, match=said) as refused:
        compiled(pattern, "deny")
    assert str(refused.value).startswith(f"deny is {pattern!r}; it must be")


def test_no_pattern_of_a_crawl_takes_long() -> None:
    scope = {"within": "any", "allow": [SLOW], "deny": [SLOW]}
    spec = crawl_spec.read({"urls": [SITE], "scope": scope, "traps": {"drop_parameters": [SLOW]}})
    assert ScopeFilter(spec, spec.urls).refuses(SITE + TEXT, 0) == "allow"
    spelling = Canonicalizer(drop_parameters=spec.traps.drop_parameters)
    assert spelling.canonical(f"{SITE}?{TEXT}=1") == f"{SITE}?{TEXT}=1"
    assert spelling.canonical(f"{SITE}?aaa=1") == SITE
    for part in ({"scope": {"deny": ["(?=a)"]}}, {"traps": {"drop_parameters": ["(?=a)"]}}):
        with pytest.raises(Invalid, match="without look-ahead"):
            crawl_spec.read({"urls": [SITE], **part})


def test_no_pattern_of_a_followed_log_takes_long() -> None:
    wanted = record_filter(LogQuery(regex=SLOW))
    assert wanted is not None
    assert not wanted(LogRecord(message=TEXT))


def test_no_rule_of_a_proxy_plan_takes_long() -> None:
    base = {"sites": ["*"], "exits": [{"name": "one", "url": "http://127.0.0.1:1"}]}
    slow = {
        **base,
        "rules": [{"verdict": "empty", "body": SLOW}, {"verdict": "empty", "header": "x", "matches": SLOW}],
    }
    assert verdict_of(exchange(TEXT, headers=(("x", TEXT),)), model.read_plan(slow).rules) == "ok"
    for pattern, said in (("(?=a)", "without look-ahead"), ("[[:alpha:", "missing")):
        with pytest.raises(Invalid, match=said):
            model.read_plan({**base, "rules": [{"verdict": "ok", "body": pattern}]})


def test_no_pattern_in_a_json_path_takes_long_and_its_dot_is_no_end_of_a_line() -> None:
    page = msgspec.json.encode([TEXT, "aa", "a.b", "a\nb"])

    def found(call: str) -> list[str]:
        rules = FieldExtractor({"x": FieldSpec(jsonpath=f"$[?{call}]", many=True)}, Canonicalizer())
        fields, _ = rules.read(FieldSource(SITE, page, None))
        texts: list[str] = fields["x"]
        return texts

    assert found(f"match(@, '{SLOW.removesuffix('$')}')") == ["aa"]
    assert found("search(@, '(a+)+!!')") == []
    assert found("match(@, 'a.b')") == ["a.b"]
    assert found("match(@, 'a[.]b')") == ["a.b"]
    assert found("match(@, '(?=a)')") == []
