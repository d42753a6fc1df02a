"""Calls about jobs: one that has finished, one that runs, some that wait behind it, and how each is ended."""

from __future__ import annotations

from tests.scrapyd.asking import Call
from tests.scrapyd.page_calls import FILES, PAGES_WITH_ALL_STATES
from tests.scrapyd.steps import Idle, Ready, Step, Until, get, post


def order(name: str, job: str, *more: tuple[str, str], spider: str = "things", **form: str) -> Call:
    return post(name, "schedule", *more, project="shop", spider=spider, jobid=job, **form)


def at_gate(name: str, job: str) -> Call:
    return order(name, job, spider="waits", gate="{gate}")


def ended_by(signal: str, job: str) -> list[Step]:
    return [
        at_gate(f"schedule-for-{signal}", job),
        Ready(job),
        post(f"cancel-with-{signal}", "cancel", project="shop", job=job, signal=signal),
        Until(job, "finished"),
    ]


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
    *(post(f"cancel-{job}", "cancel", project="shop", job=job) for job in ("four", "five", "six", "seven")),
    post("cancel-other-project", "cancel", project="stamped", job="two"),
    post("cancel-unknown-job", "cancel", project="shop", job="nope"),
    post("cancel-unknown-job-bad-signal", "cancel", project="shop", job="nope", signal="LOUD"),
    post("cancel-running-bad-signal", "cancel", project="shop", job="two", signal="LOUD"),
    order("schedule-whole-priority", "eleven"),
    order("schedule-fraction", "twelve", priority="0.25"),
    get("listjobs-fraction", "listjobs", project="shop"),
    *(post(f"cancel-{job}", "cancel", project="shop", job=job) for job in ("eleven", "twelve")),
    get("listjobs-pending-cancelled", "listjobs", project="shop"),
]

ENDED: list[Step] = [
    post("cancel-running", "cancel", project="shop", job="two"),
    Until("two", "finished"),
    get("status-cancelled-running", "status", project="shop", job="two"),
    *ended_by("KILL", "eight"),
    *ended_by("15", "nine"),
    Idle(),
    get("listjobs-ended", "listjobs", project="shop"),
    get("daemonstatus-ended", "daemonstatus"),
]

JOBS: list[Step] = [*REFUSED, *FINISHED, *WAITING, *ENDED]
