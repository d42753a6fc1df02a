"""The calendar of schedules as a page, and the preview of one that is being typed."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
import pytest_asyncio

from tests.conftest import SetClock, on_sqlite
from tests.tasks.scene import NOON, keep, noop
from tests.web.surfing import Surfer
from weft.access.model import EVERYWHERE, Role
from weft.app import App
from weft.clock import seconds

pytestmark = on_sqlite


@pytest_asyncio.fixture
async def viewer(surfer: Surfer, clock: SetClock) -> Surfer:
    clock.now = NOON
    await surfer.log_in(grants={EVERYWHERE: Role.VIEWER})
    return surfer


def days(page: str) -> dict[str, list[str]]:
    """The tasks of each day of a week."""
    found = re.findall(r'<li class="day.*?<time datetime="([\d-]+)">(.*?)  </li>', page, re.DOTALL)
    return {date: re.findall(r"</time> ([\w-]+)</a>", rest) for date, rest in found}


async def test_a_week_has_each_time_under_its_day(app: App, viewer: Surfer) -> None:
    await keep(app, noop("daily", "0 14 * * *", project="shop"), noop("monday", "30 9 * * 1", project="shop"))
    page = await viewer.get("/schedules?since=2026-06-10")
    shown = days(page.text)
    assert list(shown) == [f"2026-06-{day:02}" for day in range(8, 15)]
    assert shown["2026-06-08"] == ["monday", "daily"]
    assert shown["2026-06-09"] == ["daily"]


async def test_a_schedule_that_fires_each_minute_is_one_line(app: App, viewer: Surfer) -> None:
    await keep(app, *(noop(f"minute-{number}", "* * * * *", project="shop") for number in range(20)))
    page = await viewer.get("/schedules?since=2026-06-08")
    assert page.text.count("every minute (UTC)") == 20
    assert days(page.text)["2026-06-08"] == []
    assert len(page.data) < 60_000


async def test_more_schedules_than_a_page_has_are_on_the_next_one(app: App, viewer: Surfer) -> None:
    await keep(app, *(noop(f"task-{number:03}", "0 9 * * *", project="shop") for number in range(201)))
    first = (await viewer.get("/schedules?since=2026-06-08")).text
    assert days(first)["2026-06-08"] == [f"task-{number:03}" for number in range(40)]
    assert "and 160 more" in first
    [onward] = re.findall(r'href="([^"]+)">The next ones', first)
    assert days((await viewer.get(onward.replace("&amp;", "&"))).text)["2026-06-08"] == ["task-200"]


async def test_what_never_fired_is_told_with_why(app: App, viewer: Surfer, clock: SetClock) -> None:
    await keep(app, noop("daily", {"when": "0 13 * * *", "misfire": "skip"}, project="shop"))
    clock.now = NOON + seconds(2 * 86_400)
    await app.scheduler.tick()
    await viewer.log_in("eve", {EVERYWHERE: Role.VIEWER})
    page = (await viewer.get("/schedules?since=2026-06-01")).text
    assert page.count('class="tick tick-missed"') == 2
    assert "What did not run" in page
    assert "Weft was not running then" in page
    month = (await viewer.get("/schedules?since=2026-06-01&view=month")).text
    assert month.count("1 missed") == 2


async def test_a_month_has_numbers_that_lead_to_weeks(app: App, viewer: Surfer) -> None:
    await keep(app, noop("hourly", "@hourly", project="shop"), noop("daily", "@daily", project="shop"))
    page = (await viewer.get("/schedules?view=month&since=2026-06-17&zone=Asia/Tokyo")).text
    assert len(re.findall(r"<td class", page)) == 42
    assert 'href="/schedules?since=2026-06-17&amp;zone=Asia/Tokyo"' in page
    assert page.count('<span class="count">25</span>') > 20


async def test_days_are_those_of_the_zone_that_is_asked_for(app: App, viewer: Surfer) -> None:
    await keep(app, noop("late", "30 22 * * 2", project="shop"))
    for zone, day, time in (("UTC", "2026-06-09", "22:30"), ("Asia/Tokyo", "2026-06-10", "07:30")):
        page = (await viewer.get(f"/schedules?since=2026-06-08&zone={zone}")).text
        assert [date for date, names in days(page).items() if names] == [day]
        assert f">{time}</time> late" in page


async def test_today_is_marked(viewer: Surfer) -> None:
    page = (await viewer.get("/schedules")).text
    today = datetime.now(UTC).date().isoformat()
    assert re.search(rf'aria-current="date">\s*<h3>.*?datetime="{today}"', page, re.DOTALL)
    assert page.count('aria-current="date"') == 1


@pytest.mark.parametrize(
    ("query", "field"), [("zone=Mars/Base", "zone"), ("project=no+project", ""), ("since=soon", ""), ("after=x", "")]
)
async def test_what_cannot_be_asked_for_is_told(viewer: Surfer, query: str, field: str) -> None:
    page = await viewer.get(f"/schedules?{query}")
    if field:
        assert (page.status, f'id="{field}-error"' in page.text, "Mars/Base" in page.text) == (422, True, True)
    else:
        assert page.status in (200, 422)


@pytest.mark.parametrize("since", ["2026-01-31", "2026-12-15", "1972-01-01", "9989-12-31"])
async def test_every_month_leads_to_the_one_before_and_after_it(viewer: Surfer, since: str) -> None:
    page = (await viewer.get(f"/schedules?view=month&since={since}")).text
    before, after = re.findall(r'class="btn btn-icon" href="/schedules\?view=month&amp;since=(\d{4}-\d\d)', page)
    year, month = int(since[:4]), int(since[5:7])
    assert before == f"{year - (month == 1)}-{(month - 2) % 12 + 1:02}"
    assert after == f"{year + (month == 12)}-{month % 12 + 1:02}"


async def test_a_schedule_is_previewed_while_it_is_typed(viewer: Surfer) -> None:
    page = await viewer.get("/schedules/preview?schedule=every&when=90m&zone=UTC")
    assert "Every 90 minutes." in page.text
    assert page.text.count("<tr>") == 11
    wrong = await viewer.get("/schedules/preview?schedule=cron&when=61+*+*+*+*")
    assert (wrong.status, "minute" in wrong.text, 'class="alert alert-danger' in wrong.text) == (200, True, True)
    none = await viewer.get("/schedules/preview?schedule=none&when=x")
    assert "when somebody asks for it" in none.text


async def test_the_json_of_the_calendar_is_what_the_api_answers(app: App, viewer: Surfer) -> None:
    await keep(app, noop("daily", "@daily", project="shop"))
    shown = (await viewer.get("/schedules.json?since=2026-06-01")).data
    assert shown == (await viewer.get("/v1/schedules/calendar?since=2026-06-01&days=7")).data
