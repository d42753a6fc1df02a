"""A request as text: another process makes the same of it, or it is said that none can."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from scrapy import Field, FormRequest, Item, Request, Spider
from scrapy.http import JsonRequest

from tests.cases import for_each
from weft.agent.requests import NotText, request_of, text_of


class Thing(Item):
    name = Field()


@dataclasses.dataclass
class Way:
    steps: tuple[int, ...]


class Walker(Spider):
    name = "walker"

    def parse_thing(self, response: Any) -> None: ...

    def failed(self, failure: Any) -> None: ...

    def __hidden(self, response: Any) -> None: ...

    def hidden_request(self) -> Request:
        return Request("http://a.example/", self.__hidden)


SPIDER = Walker()

ODD: dict[Any, Any] = {"$odd": 1, 5: ("a", b"b", {1, 2}), "when": datetime(2026, 1, 1, tzinfo=UTC)}

REQUESTS = [
    Request("http://a.example/"),
    Request("http://a.example/", SPIDER.parse_thing, errback=SPIDER.failed, priority=-3, dont_filter=True),
    Request("http://a.example/", method="PUT", body=b"\x00\xff text", headers={"X-Two": ["1", "é"]}, encoding="cp1252"),
    Request("http://a.example/", cookies=[{"name": "a", "value": "b"}], flags=["seen"]),
    Request("http://a.example/", meta=ODD),
    Request("http://a.example/", cb_kwargs={"thing": Thing(name="cup"), "way": Way((1, 2)), "cost": Decimal("1.50")}),
    FormRequest("http://a.example/", formdata={"a": "b"}, meta={"depth": 2, "half": "\ud800"}),
    JsonRequest("http://a.example/", data={"a": [1, None]}, dumps_kwargs={"sort_keys": True}),
    SPIDER.hidden_request(),
]


@for_each("request_", REQUESTS, ids=range(len(REQUESTS)))
def test_a_request_comes_back_from_its_text_as_it_was(request_: Request) -> None:
    made = request_of(request_.url, text_of(request_, SPIDER), SPIDER)

    assert type(made) is type(request_)
    assert made.to_dict(spider=SPIDER) == request_.to_dict(spider=SPIDER)


def test_a_plain_request_needs_no_text() -> None:
    assert text_of(Request("http://a.example/"), SPIDER) == ""


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (Request("http://a.example/", lambda response, *_, **__: None), "<lambda> is no method of the spider"),
        (Request("http://a.example/", Walker().parse_thing), "parse_thing is no method of the spider"),
        (Request("http://a.example/", meta={"spider": SPIDER}), "a Walker cannot be written as JSON"),
        (Request("http://a.example/", meta={"size": float("nan")}), "Out of range float"),
        (Request("http://a.example/", meta={"of": type("Local", (Item,), {})()}), "there is no class"),
    ],
)
def test_a_request_that_no_other_process_can_make_says_why(request_: Request, why: str) -> None:
    with pytest.raises(NotText, match=why):
        text_of(request_, SPIDER)


@for_each(
    "text",
    [
        '{"callback":"parse_gone"}',
        '{"class":"os:_Environ"}',
        '{"class":"subprocess:Popen"}',
        '{"meta":{"$item":["subprocess:Popen",{"args":["true"]}]}}',
        '{"meta":{"$of":[1]}}',
        '{"colour":"red"}',
        "[]",
        "nonsense",
    ],
)
def test_a_text_that_is_no_request_makes_nothing(text: str) -> None:
    with pytest.raises(NotText):
        request_of("http://a.example/", text, SPIDER)
