"""Calls about jobs: one that has finished, one that runs, some that wait behind it, and how each is ended."""

from __future__ import annotations

from tests.scrapyd.asking import Call
from tests.scrapyd.page_calls import FILES, PAGES_WITH_ALL_STATES
from tests.scrapyd.steps import Idle, Ready, Step, Until, get, page, post


def order(name: str, job: str, *more: tuple[str, str], spider: str = "things", **form: str) -> Call:
    return post(name, "schedule", *more, project="shop", spider=spider, jobid=job, **form)


def at_gate(name: str, job: str) -> Call:
    return order(name, job, spider="waits", gate="{gate}")


REFUSED = [
    post("schedule-unknown-spider", "schedule", project="shop", spider="nope"),
    post("schedule-spider-traversal", "schedule", project="shop", spider="../things"),
    order("schedule-unknown-version", "x", ("_version", "7")),
    order("schedule-spider-of-other-version", "x", ("_version", "0.1")),
    order("schedule-setting-without-value", "x", setting="DEPTH_LIMIT"),
    Call(
        name="schedule-argument-bad-encoding",
        method="POST",
        path="/schedule.json",
        query="project=shop&spider=things&jobid=x&count=%ff",
    ),
    get("listjobs-after-refusals", "listjobs"),
]

FINISHED: list[Step] = [
    order("schedule", "one"),
    Until("one", "finished"),
    get("status-finished", "status", project="shop", job="one"),
    get("status-finished-anywhere", "status", job="one"),
    get("status-of-other-project", "status", project="stamped", job="one"),
    get("listjobs-finished", "listjobs", project="shop"),
    get("listjobs-of-other-project", "listjobs", project="stamped"),
    get("daemonstatus-finished", "daemonstatus"),
    post("cancel-finished", "cancel", project="shop", job="one"),
    *FILES,
]

TOLD: list[Step] = [
    order("schedule-tells", "eleven", ("start-url", "a b&c=d"), spider="tells", setting="A=1=2", x="1", y=""),
    order("schedule-tells-of-version", "twelve", ("_version", "0.2"), ("setting", "BOT_NAME=b"), spider="tells"),
    Until("twelve", "finished"),
    page("items-told", "/items/shop/tells/eleven.jl"),
    page("items-told-of-version", "/items/shop/tells/twelve.jl"),
]
"""What a job is given: its arguments, its settings and its environment, as its only item."""

WAITING: list[Step] = [
    at_gate("schedule-running", "two"),
    Ready("two"),
    order("schedule-pending", "three", arg1="a=b", count="2"),
    order("schedule-settings", "four", ("setting", "A=1"), ("setting", "B=2=3"), priority="1"),
    order("schedule-version", "five", ("_version", "0.1"), spider="only", priority="-1"),
    order("schedule-listed-version", "six", ("_version", "0_1"), spider="only", priority="2"),
    order("schedule-first-argument-counts", "seven", ("count", "2"), ("count", "9"), priority="1.0"),
    post("schedule-without-jobid", "schedule", project="stamped", spider="only"),
    get("status-running", "status", project="shop", job="two"),
    get("status-pending", "status", project="shop", job="three"),
    get("status-pending-anywhere", "status", job="three"),
    get("listjobs", "listjobs"),
    get("listjobs-of-project", "listjobs", project="shop"),
    get("listjobs-first-project-counts", "listjobs", project="stamped"),
    get("daemonstatus", "daemonstatus"),
    *PAGES_WITH_ALL_STATES,
    order("schedule-jobid-again", "three", arg1="c"),
    get("listjobs-jobid-again", "listjobs", project="shop"),
    post("cancel-pending", "cancel", project="shop", job="three"),
    get("status-cancelled-pending", "status", project="shop", job="three"),
    post("cancel-again", "cancel", project="shop", job="three"),
    *(post(f"cancel-{job}", "cancel", project="shop", job=job) for job in ("four", "five", "six")),
    post("cancel-with-number", "cancel", project="shop", job="seven", signal="15"),
    post("cancel-other-project", "cancel", project="stamped", job="two"),
    post("cancel-unknown-job", "cancel", project="shop", job="nope"),
    post("cancel-unknown-job-bad-signal", "cancel", project="shop", job="nope", signal="LOUD"),
    post("cancel-running-bad-signal", "cancel", project="shop", job="two", signal="LOUD"),
    order("schedule-no-priority", "thirteen"),
    order("schedule-fraction", "fourteen", priority="0.25"),
    get("listjobs-fraction", "listjobs", project="shop"),
    *(post(f"cancel-{job}", "cancel", project="shop", job=job) for job in ("thirteen", "fourteen")),
    order("schedule-secret", "fifteen", setting="API_TOKEN=nobody knows", password="nobody guesses"),
    get("listjobs-secret", "listjobs", project="shop"),
    post("cancel-fifteen", "cancel", project="shop", job="fifteen"),
    get("listjobs-pending-cancelled", "listjobs", project="shop"),
]

ENDED: list[Step] = [
    post("cancel-running", "cancel", project="shop", job="two"),
    Until("two", "finished"),
    get("status-cancelled-running", "status", project="shop", job="two"),
    at_gate("schedule-for-kill", "eight"),
    Ready("eight"),
    post("cancel-with-kill", "cancel", project="shop", job="eight", signal="KILL"),
    Until("eight", "finished"),
    Idle(),
    get("listjobs-ended", "listjobs", project="shop"),
    get("daemonstatus-ended", "daemonstatus"),
]

JOBS: list[Step] = [*REFUSED, *FINISHED, *TOLD, *WAITING, *ENDED]
