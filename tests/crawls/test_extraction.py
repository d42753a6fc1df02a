"""What is kept of a page besides its title and its links."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases import for_each
from tests.crawls.exchanges import exchange
from weft import crawl_spec
from weft.cli.crawls import page_fields
from weft.crawler.messages import CrawlPolicy
from weft.crawler.pages import PageReader, ParsedPage
from weft.crawls.validation import validated_spec
from weft.errors import Invalid

HERE = "http://site.example/shop/lamp"
ARTICLE = "<p>" + "The lamp stands on the table, and its light is warm, soft and kind to the eyes. " * 8 + "</p>"
HTML = f"""<html lang="en-GB"><head><title>Lamp</title><meta name=description content="A  lamp">
<meta property="og:title" content="Lamp"><meta property="og:image" content="/1.png">
<meta property="og:image" content="/2.png">
<script type="application/ld+json">{{"@type": "Product", "name": "Lamp", "offers": {{"price": "12.50"}}}}</script>
<script type="application/ld+json">[{{"@type": "Thing"}}, 7]</script>
<script type="application/ld+json">{{broken</script></head>
<body><nav><a href="/">Home</a></nav><article><h1>A lamp</h1>{ARTICLE}</article>
<div itemscope itemtype="https://schema.org/Product"><span itemprop="name">Lamp</span>
<a itemprop="url" href="/lamp">x</a><div itemprop="offers" itemscope><b itemprop="price" content="12.50">12</b></div>
</div>
<p class=price>1.234,50 €</p><p class=count>about 1,234 pieces</p><time datetime="2026-11-16T12:00:00+02:00">noon</time>
<p class=stock>yes</p><p class=tag>a</p><p class=tag>b</p></body></html>"""


def read(keeping: dict[str, Any], body: str = HTML, content_type: str = "text/html; charset=utf-8") -> ParsedPage:
    spec = crawl_spec.read({"urls": [HERE], "keeping": keeping})
    return PageReader(spec).read(exchange(body, HERE, content_type=content_type))


def field(rule: dict[str, Any], body: str = HTML, **more: Any) -> Any:
    return read({"fields": {"x": rule}}, body, **more).fields["x"]


def test_main_text_and_markdown_leave_out_what_is_on_every_page() -> None:
    fields = read({"text": True, "markdown": True}).fields
    assert "its light is warm" in fields["text"]
    assert "Home" not in fields["text"]
    assert "its light is warm" in fields["markdown"]
    assert fields["description"] == "A lamp"


@pytest.mark.parametrize(
    ("base", "lamp"), [("", "http://site.example/shop/red"), ("<base href=/new/>", "http://site.example/new/red")]
)
def test_links_in_markdown_are_whole(base: str, lamp: str) -> None:
    odd = '<a href="http://a\u2100b/">odd</a> <a href="mailto:a@b.example">mail</a>'
    links = f'<p><a href="red">red</a> {odd} <img src="/1.png" alt=it></p>'
    body = f"<html><head>{base}</head><body><article><h1>Lamps</h1>{ARTICLE}{links}{ARTICLE}</article></body></html>"
    found = read({"markdown": True}, body).fields["markdown"]
    assert f"[red]({lamp})" in found
    assert "[mail](mailto:a@b.example)" in found
    assert "![it](http://site.example/1.png)" in found


def test_a_language_is_what_the_page_says_or_what_it_looks_like() -> None:
    assert read({"language": True}).fields["language"] == "en-GB"
    assert read({"language": True}, f"<body>{ARTICLE}").fields["language"] == "en"
    assert read({"language": True}, "<body>42").fields["language"] == ""


def test_structured_data_is_found_and_what_is_broken_is_left_out() -> None:
    found = read({"structured": True}).fields["structured"]
    assert found["json_ld"] == [
        {"@type": "Product", "name": "Lamp", "offers": {"price": "12.50"}},
        {"@type": "Thing"},
        7,
    ]
    assert found["opengraph"] == {"og:title": "Lamp", "og:image": ["/1.png", "/2.png"]}
    assert found["microdata"] == [
        {
            "type": "https://schema.org/Product",
            "properties": {
                "name": "Lamp",
                "url": "/lamp",
                "offers": {"type": "", "properties": {"price": "12.50"}},
            },
        }
    ]


@for_each(
    ("rule", "value"),
    [
        ({"css": "h1"}, "A lamp"),
        ({"xpath": "//h1"}, "A lamp"),
        ({"xpath": "//h1/text()"}, "A lamp"),
        ({"xpath": "count(//p[@class='tag'])", "type": "whole"}, 2),
        ({"css": ".tag", "many": True}, ["a", "b"]),
        ({"css": "p.tag, .tag", "many": True}, ["a", "b"]),
        ({"css": ".price", "type": "number"}, 1234.5),
        ({"css": ".count", "type": "whole"}, 1234),
        ({"css": "time", "attribute": "datetime", "type": "time"}, "2026-11-16T10:00:00Z"),
        ({"css": "a", "attribute": "href", "type": "url"}, "http://site.example/"),
        ({"css": ".stock", "type": "flag"}, True),
        ({"css": ".tag", "type": "html"}, '<p class="tag">a</p>'),
        ({"xpath": "//p[@class='tag']", "type": "html"}, '<p class="tag">a</p>'),
        ({"jsonpath": "$[0].offers.price", "type": "number"}, 12.5),
        ({"jsonpath": "$..name"}, "Lamp"),
        ({"css": ".nothing"}, None),
        ({"css": ".nothing", "many": True}, []),
        ({"css": ".stock", "type": "number"}, None),
    ],
)
def test_a_rule_makes_a_field_of_its_type(rule: dict[str, Any], value: Any) -> None:
    assert field(rule) == value


@for_each(
    ("text", "number"),
    [
        ("1,234.50", 1234.5),
        ("1.234,50", 1234.5),
        ("1 234,5", 1234.5),
        ("12,5", 12.5),
        ("1,234", 1234),
        ("-3.5 °C", -3.5),
        *(("1.234.567", 1234567), ("7", 7), ("£3", 3), ("1’000", 1000), ("none", None), ("2e3", 2000.0)),
    ],
)
def test_numbers_are_read_as_people_write_them(text: str, number: float | None) -> None:
    assert field({"css": "p", "type": "number"}, f"<p>{text}</p>") == number


def test_pages_of_json_have_fields_as_well() -> None:
    body = '{"things": [{"name": "a", "at": 0}, {"name": "b"}]}'
    assert field({"jsonpath": "$.things[*].name", "many": True}, body, content_type="application/json") == ["a", "b"]
    assert field({"jsonpath": "$..at", "type": "time"}, body, content_type="application/json") == "1970-01-01T00:00:00Z"
    assert field({"jsonpath": "$..at"}, "{broken", content_type="application/json") is None


def test_a_page_without_a_field_that_it_must_have_says_which() -> None:
    page = read({"fields": {"a": {"css": ".nothing", "required": True}, "b": {"css": "h1", "required": True}}})
    assert page.missing == ("a",)


@pytest.mark.parametrize("rule", [{"css": "[["}, {"xpath": "//a["}, {"jsonpath": "$..["}])
def test_a_rule_that_is_none_is_refused_before_the_crawl_begins(rule: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match=r"crawl\.keeping\.fields\.x"):
        read({"fields": {"x": rule}})
    with pytest.raises(Invalid, match=r"crawl\.keeping\.fields\.x"):
        validated_spec({"urls": [HERE], "keeping": {"fields": {"x": rule}}}, CrawlPolicy("crawl@weft.example"))


def test_the_fields_of_a_page_are_those_that_an_export_may_be_asked_for() -> None:
    keeping = dict.fromkeys(("text", "markdown", "language", "structured"), True)
    spec = crawl_spec.read({"urls": [HERE], "keeping": keeping | {"fields": {"price": {"css": ".price"}}}})
    pages = [exchange(HTML, HERE), exchange("plain", HERE, content_type="text/plain")]
    found = {name for page in pages for name in PageReader(spec).read(page).item(1)}
    assert found == set(page_fields(spec))
