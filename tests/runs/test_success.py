"""When the run of a spider has succeeded: its figures, its marks, and the conditions that it is under."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.items.scene import Spider, lines
from tests.projects.making import a_version
from tests.runs.acting import Hand, events_of, submit
from tests.tasks.scene import keep
from weft.app import App
from weft.errors import Invalid
from weft.runs.model import Run, RunState
from weft.runs.success import FieldCondition, RunStats, SuccessConditions, conditions_of, decided
from weft.runs.success_text import condition_lines, parse_conditions
from weft.tasks.model import ProjectSettings, Task

Given = dict[str, Any]
GOOD = {"downloader/request_count": 5, "response_received_count": 4, "finish_reason": "finished"}


def asked(**given: Any) -> SuccessConditions:
    return msgspec.convert(given, SuccessConditions)


async def ended(app: App, *items: Given, stats: Given | None = None, outcome: str = "succeeded", **fields: Any) -> Run:
    """A run of the spider ``prices`` that has yielded these items, as it stands after its end."""
    fields = {"task": "prices", "kind": "spider", "spec": {"spider": "prices"}} | fields
    run_id = await submit(app, **fields)
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    assert lease.run_id == run_id
    told = GOOD | (stats or {})
    await Spider(hand, lease).send(lines(items), stats=told)
    reason = told["finish_reason"]
    closed = "" if reason == "finished" or outcome != "succeeded" else f"closed: {reason}"
    assert await hand.end(lease, outcome, reason=closed, result={"finish_reason": reason})
    return await app.runs.get(run_id)


async def test_a_run_keeps_what_it_has_counted_in_columns(app: App) -> None:
    await a_version(app, "shop")
    stats = {"log_count/ERROR": 2, "log_count/CRITICAL": 1, "log_count/WARNING": 7, "item_scraped_count": 99}
    run = await ended(app, {"n": 1}, {"n": 2}, stats=stats)
    assert (run.items, run.pages, run.requests, run.errors, run.warnings) == (2, 4, 5, 3, 7)
    assert (run.finish_reason, run.marks) == ("finished", ("errors",))


async def test_runs_that_count_end_together_with_those_that_do_not(app: App) -> None:
    await a_version(app, "shop")
    hand = await Hand.join(app)
    plain, conditional, spider, lost = [
        await submit(app),
        await submit(app, conditions=conditions_of([("task", asked(items={"min": 1}))])),
        await submit(app, task="prices", kind="spider", spec={"spider": "prices"}),
        await submit(app, task="prices", kind="spider", spec={"spider": "prices"}, retries=1, delay_seconds=0.0),
    ]
    leases = {each.run_id: each for each in await hand.lease()}
    for run_id in (spider, lost):
        await Spider(hand, leases[run_id]).send(lines([{"n": 1}]), stats=GOOD)
    assert await hand.end(leases[lost], "failed")
    assert (await app.runs.get(lost)).items == 1
    leases[lost] = await hand.lease_one()
    assert await hand.end_all([leases[each] for each in (plain, conditional, spider, lost)]) == [True] * 4
    runs = [await app.runs.get(each) for each in (plain, conditional, spider, lost)]
    assert [(run.state, run.items, run.finish_reason, run.marks) for run in runs] == [
        (RunState.SUCCEEDED, None, None, ()),
        (RunState.SUCCEEDED, None, None, ()),
        (RunState.SUCCEEDED, 1, "finished", ()),
        (RunState.SUCCEEDED, None, None, ()),
    ]
    assert [[each.undecided for each in run.conditions] for run in runs] == [[], ["count"], [], []]


async def test_a_running_run_shows_what_it_has_counted_so_far(app: App) -> None:
    await a_version(app, "shop")
    run_id = await submit(app, task="prices", kind="spider", spec={"spider": "prices"})
    hand = await Hand.join(app)
    await Spider(hand, await hand.lease_one()).send(lines([{"n": 1}]), stats=GOOD | {"log_count/ERROR": 1})
    run = await app.runs.get(run_id)
    assert (run.state, run.items, run.pages, run.requests, run.errors) == (RunState.RUNNING, 1, 4, 5, 1)


async def test_a_lost_run_keeps_what_it_had_counted(app: App) -> None:
    await a_version(app, "shop")
    run_id = await submit(app, task="prices", kind="spider", spec={"spider": "prices"}, max_losses=1)
    hand = await Hand.join(app)
    await Spider(hand, await hand.lease_one()).send(lines([{"n": 1}]), stats=GOOD)
    await hand.lose()
    run = await app.runs.get(run_id)
    assert (run.state, run.items, run.pages, run.marks) == (RunState.FAILED, 1, 4, ())


@pytest.mark.parametrize(
    ("items", "stats", "marks"),
    [
        ([{"n": 1}], {}, ()),
        ([{"n": 1}], {"spider_exceptions/ValueError": 1}, ("errors",)),
        ([{"n": 1}], {"finish_reason": "login_failed"}, ("finish_reason",)),
        ([], {}, ("no_items",)),
        ([], {"downloader/request_count": 0, "response_received_count": 0}, ("no_requests",)),
    ],
)
async def test_a_run_that_does_not_look_like_success_is_marked(
    app: App, items: list[Given], stats: Given, marks: tuple[str, ...]
) -> None:
    await a_version(app, "shop")
    run = await ended(app, *items, stats=stats)
    assert (run.state, run.marks) == (RunState.SUCCEEDED, marks)
    for mark in ("errors", "finish_reason", "no_requests", "no_items"):
        assert [each.id for each in await app.runs.find({"mark": mark})] == [run.id] * (mark in marks)


async def test_a_run_that_shares_a_frontier_may_find_nothing_left(app: App) -> None:
    await a_version(app, "shop")
    run = await ended(app, spec={"spider": "prices", "frontier": "all"}, stats={"downloader/request_count": 0})
    assert run.marks == ()


@pytest.mark.parametrize(
    ("conditions", "stats", "why"),
    [
        ({"errors": {"max": 0}}, {"log_count/ERROR": 3}, "3 errors were logged, at most 0 are allowed"),
        ({"warnings": {"max": 1}}, {"log_count/WARNING": 2}, "2 warnings were logged, at most 1 is allowed"),
        ({"items": {"min": 10}}, {}, "2 items were stored, at least 10 are required"),
        ({"items": {"max": 1}}, {}, "2 items were stored, at most 1 is allowed"),
        ({"pages": {"min": 1}}, {"response_received_count": 0}, "0 pages were fetched, at least 1 is required"),
        ({"requests": {"min": 6}}, {}, "5 requests were made, at least 6 are required"),
        (
            {"finish_reason": "finished"},
            {"finish_reason": "login_failed"},
            "the spider was closed with login_failed, allowed is finished",
        ),
        (
            {"fields": {"price": {"missing_max_percent": 40}}},
            {},
            "price is missing in 50 % of the items, at most 40 % are allowed",
        ),
        (
            {"errors": {"max": 0}, "items": {"min": 3}},
            {"log_count/ERROR": 1},
            "1 error was logged, at most 0 are allowed; 2 items were stored, at least 3 are required",
        ),
    ],
)
async def test_a_run_whose_condition_does_not_hold_has_failed_and_says_why(
    app: App, conditions: Given, stats: Given, why: str
) -> None:
    await a_version(app, "shop")
    run = await ended(app, {"price": 1}, {"price": ""}, stats=stats, success_if=asked(**conditions))
    assert (run.state, run.outcome, run.reason) == (RunState.FAILED, "condition", why)
    assert {each.held for each in run.conditions} == {False}
    [finished] = [each for each in await events_of(app, run.id) if each.kind == "run_finished"]
    assert finished.data == {"state": "failed", "outcome": "condition", "reason": why}
    assert [each.id for each in await app.runs.find({"state": "failed"})] == [run.id]
    assert [each.id for each in await app.runs.find({"outcome": "condition"})] == [run.id]
    assert (await app.runs.attempts(run.id))[-1].reason == why


async def test_a_run_whose_conditions_hold_says_what_was_found(app: App) -> None:
    await a_version(app, "shop")
    conditions = asked(errors={"max": 0}, items={"min": 2}, fields={"price": {"missing_max_percent": 50}})
    run = await ended(app, {"price": 1}, {"name": "x"}, success_if=conditions)
    assert run.state is RunState.SUCCEEDED
    assert [(each.name, each.found, each.held) for each in run.conditions] == [
        ("errors", 0, True),
        ("items", 2, True),
        ("fields", 50, True),
    ]


async def test_fewer_items_than_usual_fail_a_run_once_it_is_known_what_is_usual(app: App) -> None:
    await a_version(app, "shop")
    few = asked(items={"min_percent_of_usual": 50})
    first = await ended(app, {"n": 1}, success_if=few)
    assert (first.state, first.conditions[0].held) == (RunState.SUCCEEDED, None)
    for _ in range(3):
        await ended(app, *({"n": each} for each in range(10)))
    enough = await ended(app, *({"n": each} for each in range(5)), success_if=few)
    assert (enough.state, enough.conditions[0].usual) == (RunState.SUCCEEDED, 10)
    less = await ended(app, {"n": 1}, {"n": 2}, {"n": 3}, success_if=few)
    assert less.reason == "3 items were stored, at least 50 % of the usual 10 are required"
    other = await ended(app, {"n": 1}, success_if=few, task="other")
    assert other.state is RunState.SUCCEEDED


USUAL_MISSING = (
    "items >= 50 % of usual was not decided: the usual number of items is missing, "
    "as fewer than 3 earlier runs of the task succeeded and counted them"
)


@pytest.mark.parametrize(
    ("conditions", "items", "lacks", "why"),
    [
        ({"items": {"min_percent_of_usual": 50}}, [{"n": 1}], "usual", USUAL_MISSING),
        (
            {"fields": {"price": {"missing_max_percent": 5}}},
            [],
            "items",
            "missing price <= 5 % was not decided: there are no items, so no share of them is known",
        ),
    ],
)
async def test_a_condition_without_a_number_to_decide_by_is_marked_and_says_which_number_is_missing(
    app: App, conditions: Given, items: list[Given], lacks: str, why: str
) -> None:
    await a_version(app, "shop")
    run = await ended(app, *items, success_if=asked(**conditions))
    assert (run.state, run.outcome, run.reason) == (RunState.SUCCEEDED, "succeeded", why)
    assert "undecided" in run.marks
    assert [(each.held, each.undecided) for each in run.conditions] == [(None, lacks)]
    [finished] = [each for each in await events_of(app, run.id) if each.kind == "run_finished"]
    assert finished.data == {"state": "succeeded", "outcome": "succeeded", "reason": why}
    assert [each.id for each in await app.runs.find({"mark": "undecided"})] == [run.id]


async def test_conditions_on_counts_that_never_arrived_are_undecided(app: App) -> None:
    await a_version(app, "shop")
    conditions = asked(errors={"max": 0}, finish_reason="finished", fields={"price": {"missing_max_percent": 5}})
    run_id = await submit(app, task="prices", kind="spider", spec={"spider": "prices"}, success_if=conditions)
    hand = await Hand.join(app)
    await hand.end(await hand.lease_one())
    run = await app.runs.get(run_id)
    assert (run.state, run.marks) == (RunState.SUCCEEDED, ("undecided",))
    assert run.reason == (
        "finish_reason = finished was not decided: the reason with which the spider closed is missing, as it never "
        "arrived; errors <= 0 was not decided: the number of logged errors is missing, as it never arrived; "
        "missing price <= 5 % was not decided: the number of items is missing, as it never arrived"
    )


async def test_what_cannot_be_decided_stands_behind_what_the_worker_says(app: App) -> None:
    await a_version(app, "shop")
    few = asked(items={"min_percent_of_usual": 50})
    run = await ended(app, {"n": 1}, stats={"finish_reason": "enough"}, success_if=few)
    assert (run.marks, run.reason) == (("finish_reason", "undecided"), f"closed: enough; {USUAL_MISSING}")


async def test_a_run_that_fails_by_one_condition_is_not_marked_for_another_that_is_undecided(app: App) -> None:
    await a_version(app, "shop")
    both = asked(items={"min_percent_of_usual": 50}, pages={"min": 5})
    run = await ended(app, {"n": 1}, success_if=both)
    assert (run.outcome, run.marks) == ("condition", ())
    assert run.reason == "4 pages were fetched, at least 5 are required"
    assert [(each.held, each.undecided) for each in run.conditions] == [(None, "usual"), (False, None)]


async def test_a_later_attempt_that_is_decided_is_no_longer_undecided(app: App) -> None:
    await a_version(app, "shop")
    price = asked(items={"min": 1}, fields={"price": {"missing_max_percent": 5}})
    again = await ended(app, success_if=price, retries=1, delay_seconds=0)
    assert [(each.held, each.undecided) for each in again.conditions] == [(False, None), (None, "items")]
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    await Spider(hand, lease).send(lines([{"price": 1}]), stats=GOOD)
    await hand.end(lease)
    run = await app.runs.get(again.id)
    assert (run.state, run.marks, run.reason) == (RunState.SUCCEEDED, (), None)
    assert [(each.held, each.undecided) for each in run.conditions] == [(True, None), (True, None)]


async def test_an_attempt_that_failed_by_itself_is_not_undecided(app: App) -> None:
    await a_version(app, "shop")
    run = await ended(app, outcome="failed", success_if=asked(items={"min_percent_of_usual": 50}))
    assert (run.state, run.marks, run.conditions[0].undecided) == (RunState.FAILED, (), None)


async def test_the_narrower_condition_wins_and_leaves_the_others_alone(app: App) -> None:
    await a_version(app, "shop")
    told = {
        "success_if": {"errors": {"max": 0}, "warnings": {"max": 0}, "items": {"min": 5}, "pages": {"min": 3}},
        "spiders": {"prices": {"success_if": {"items": {"min": 1}, "pages": {}}}, "other": {"success_if": {}}},
    }
    await app.tasks.configure("shop", msgspec.convert(told, ProjectSettings))
    run = await ended(app, {"n": 1}, stats={"log_count/ERROR": 2}, success_if=asked(errors={"max": 2}))
    assert [(each.name, each.limit, each.of) for each in run.conditions] == [
        ("errors", 2, "task"),
        ("warnings", 0, "project"),
        ("items", 1, "spider"),
    ]
    assert run.state is RunState.SUCCEEDED


async def test_settings_come_back_as_they_were_given_and_hold_for_runs_that_are_queued_afterwards(app: App) -> None:
    await a_version(app, "shop")
    settings = ProjectSettings(success_if=asked(items={"min": 5}))
    before = await submit(app, task="prices", kind="spider", spec={"spider": "prices"})
    assert await app.tasks.configure("shop", settings) == settings == await app.tasks.settings("shop")
    after = await submit(app, task="prices", kind="spider", spec={"spider": "prices"})
    assert [len((await app.runs.get(each)).conditions) for each in (before, after)] == [0, 1]
    assert await app.tasks.configure("shop", ProjectSettings()) == ProjectSettings()
    later = await submit(app, task="prices", kind="spider", spec={"spider": "prices"})
    assert (await app.runs.get(later)).conditions == ()


async def test_a_run_that_failed_by_a_condition_is_tried_again_only_where_retries_are_set(app: App) -> None:
    await a_version(app, "shop")
    under: Given = {"success_if": asked(items={"min": 1})}
    assert (await ended(app, **under)).state is RunState.FAILED
    again = await ended(app, retries=1, delay_seconds=0, **under)
    assert (again.state, again.outcome, again.conditions[0].held) == (RunState.QUEUED, None, False)
    [attempt] = await app.runs.attempts(again.id)
    assert attempt.outcome == "condition"
    hand = await Hand.join(app)
    lease = await hand.lease_one()
    await Spider(hand, lease).send(lines([{"n": 1}]), stats=GOOD)
    await hand.end(lease)
    assert (await app.runs.get(again.id)).state is RunState.SUCCEEDED
    other = await ended(app, retries=1, delay_seconds=0, retry_on=("failed",), **under)
    assert other.state is RunState.FAILED


async def test_an_attempt_that_failed_by_itself_keeps_its_own_reason(app: App) -> None:
    await a_version(app, "shop")
    run = await ended(app, outcome="failed", success_if=asked(items={"min": 1}))
    assert (run.outcome, run.conditions[0].held) == ("failed", None)


async def test_a_resumed_run_is_judged_by_all_that_it_has_yielded(app: App) -> None:
    await a_version(app, "shop")
    spec = {"spider": "prices", "resumable": True}
    conditions = asked(items={"min": 2}, fields={"price": {"missing_max_percent": 50}})
    run_id = await submit(app, task="prices", kind="spider", spec=spec, success_if=conditions)
    hand = await Hand.join(app)
    for outcome in ("released", "succeeded"):
        lease = await hand.lease_one()
        item = {"price": 1} if outcome == "released" else {"name": "x"}
        await Spider(hand, lease).send(lines([item]), stats=GOOD)
        await hand.end(lease, outcome)
    run = await app.runs.get(run_id)
    assert (run.state, run.items, [each.found for each in run.conditions]) == (RunState.SUCCEEDED, 2, [2, 50])


async def test_a_repeated_run_is_under_the_conditions_of_now(app: App) -> None:
    await a_version(app, "shop")
    await app.tasks.configure("shop", ProjectSettings(success_if=asked(errors={"max": 0})))
    old = await ended(app, {"n": 1}, success_if=asked(items={"min": 1}))
    await app.tasks.configure("shop", ProjectSettings(success_if=asked(pages={"min": 1})))
    new = await app.runs.get((await app.runs.again(old.id)).run_id)
    assert [(each.name, each.held) for each in new.conditions] == [("pages", None), ("items", None)]


async def test_only_tasks_of_spiders_have_conditions(app: App) -> None:
    with pytest.raises(Invalid, match="only a task of the kind spider"):
        Task(name="x", kind="shell", success_if=SuccessConditions())
    await keep(app, Task(name="x", project="shop", kind="spider", spec={"spider": "prices"}, success_if=asked()))


@pytest.mark.parametrize(
    "line",
    [
        "errors <= 0",
        "warnings <= 12",
        "items >= 10",
        "items >= 50 % of usual",
        "pages <= 100",
        "requests >= 1",
        "finish_reason = finished, closespider_timeout",
        "finish_reason = any",
        "missing price of it <= 2.5 %",
        "missing price any",
        "errors any",
    ],
)
def test_a_condition_is_written_as_it_is_read(line: str) -> None:
    assert condition_lines(parse_conditions([line])) == [line]


@pytest.mark.parametrize(
    "line", ["errors", "errors < 0", "mistakes <= 0", "items >= 5 %", "items >= -1", "any", "<= 5"]
)
def test_a_line_that_is_no_condition_is_refused_with_an_example(line: str) -> None:
    with pytest.raises(Invalid, match="it must be like errors <= 0"):
        parse_conditions([line])


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["items >= 5", "items <= 2"], "success_if: items: min may not be above max (got min = 5, max = 2)"),
        (["items >= 101 % of usual"], "success_if is 'items >= 101 % of usual'; a percentage is from 0 to 100"),
        (["missing a <= 200 %"], "success_if is 'missing a <= 200 %'; a percentage is from 0 to 100"),
        (
            ["errors <= 0", "items >= 1,000,000,000,000,001"],
            "success_if is 'items >= 1,000,000,000,000,001'; a number is at most 1,000,000,000,000,000",
        ),
        (
            [f"missing f{number} <= 1 %" for number in range(51)],
            "success_if: fields names 51 fields; it may name 50 at most",
        ),
    ],
)
def test_lines_that_cannot_hold_are_refused_by_what_is_wrong_with_them(lines: list[str], why: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_conditions(lines)
    assert str(refused.value) == why


def test_what_a_condition_names_is_a_text_and_no_pattern() -> None:
    """So no condition takes long, whatever a spider says."""
    given = SuccessConditions(finish_reason="(a+)+$", fields={".*": FieldCondition(0)})
    figures = RunStats(items=1, finish_reason="a" * 60 + "!", missing={"name": 1})
    held = {each.name: each.held for each in decided(conditions_of([("task", given)]), figures, {})}
    assert held == {"finish_reason": False, "fields": True}


def test_conditions_of_an_empty_task_are_none() -> None:
    assert conditions_of([("project", None), ("task", SuccessConditions())]) == ()
