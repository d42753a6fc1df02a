"""The comparison sees what clients would see, and nothing else."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.scrapyd.asking import Answer
from tests.scrapyd.comparing import differences, fields_of
from tests.scrapyd.real import ZONE

JSON = {"content-type": "application/json"}
HTML = {"content-type": "text/html; charset=utf-8"}
MOMENT = datetime.now(ZONE).replace(tzinfo=None, microsecond=0)
TIMES = {name: str(MOMENT - timedelta(minutes=ago)) for name, ago in {"NOW": 0, "BEFORE": 3, "ELSEWHERE": 330}.items()}
PENDING = "<html><table><tbody><tr><th>Pending</th></tr>{rows}</tbody></table>"


def unlike(one: str, other: str, kind: dict[str, str] = JSON) -> list[str]:
    first, second = (fields_of(Answer(200, kind, with_times(text).encode())) for text in (one, other))
    return differences(first, second)


def with_times(text: str) -> str:
    for name, time in TIMES.items():
        text = text.replace(name, time)
    return text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"jobid": "0123456789abcdef0123456789abcdef"}\n', '{"jobid": "f123456789abcdef0123456789abcdef"}\n'),
        ('{"start_time": "NOW.833607"}\n', '{"start_time": "BEFORE.000001"}\n'),
        ('{"running": [{"pid": 17}]}\n', '{"running": [{"pid": 4}]}\n'),
        ('{"projects": ["a", "b"]}\n', '{"projects": ["b", "a"]}\n'),
        ('{"message": "RunnerError: x\\n  y\\nKeyError: 1\\n"}\n', '{"message": "RunnerError: z\\nKeyError: 1"}\n'),
    ],
)
def test_what_is_each_servers_own_is_no_difference(one: str, other: str) -> None:
    assert unlike(one, other) == []


@pytest.mark.parametrize(
    ("one", "other", "fields"),
    [
        ('{"jobid": "a"}\n', '{"jobid": "b"}\n', ["jobid"]),
        ('{"jobid": "a"}\n', '{"jobid": "a"}', ["end"]),
        ('{"running": [{"pid": 17}]}\n', '{"running": [{"pid": null}]}\n', ["running"]),
        ('{"start_time": "NOW.833607"}\n', '{"start_time": "NOW"}\n', ["start_time"]),
        ('{"start_time": "NOW.833607"}\n', '{"start_time": "ELSEWHERE.833607"}\n', ["start_time"]),
        ('{"versions": ["1", "2"]}\n', '{"versions": ["2", "1"]}\n', ["versions"]),
        ('{"status": "ok", "spiders": 1}\n', '{"status": "error", "message": "no"}\n', ["status"]),
        ('{"message": "RunnerError: KeyError: 1"}\n', '{"message": "RunnerError: KeyError: 2"}\n', ["message"]),
    ],
)
def test_what_a_client_would_see_is_a_difference(one: str, other: str, fields: list[str]) -> None:
    assert unlike(one, other) == fields


def test_headers_and_codes_are_compared() -> None:
    here = fields_of(Answer(200, JSON | {"allow": "GET"}, b"{}\n"))
    assert differences(here, fields_of(Answer(200, JSON, b"{}\n"))) == ["allow"]
    assert differences(here, fields_of(Answer(404, HTML, b"<html>no"))) == ["code"]


def test_pending_rows_of_two_projects_may_come_in_any_order_but_not_those_of_one() -> None:
    one, other, third = ("<tr><td>a</td><td>1</td></tr>", "<tr><td>b</td></tr>", "<tr><td>a</td><td>x</td></tr>")
    assert unlike(PENDING.format(rows=one + other), PENDING.format(rows=other + one), HTML) == []
    assert unlike(PENDING.format(rows=one + third), PENDING.format(rows=third + one), HTML) == ["table"]


def test_links_and_forms_of_a_page_are_compared() -> None:
    row = '<html><table><tbody><tr><td><a href="{}">Log</a></td></tr></tbody></table>'
    assert unlike(row.format("/logs/a.log"), row.format("/a.log"), HTML) == ["table"]
