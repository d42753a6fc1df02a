"""The recorded set: every call that goes to Scrapyd and to weft, in its order. A name is used once.

Both sides begin empty and take one job at a time, so that the second one waits.
"""

from __future__ import annotations

import base64

from tests.scrapyd.asking import RIGHT, Call
from tests.scrapyd.eggs import ONE_SPIDER, egg
from tests.scrapyd.job_calls import JOBS
from tests.scrapyd.page_calls import EMPTY_PAGES
from tests.scrapyd.real import USER
from tests.scrapyd.steps import Step, deploy, get, post

READING = ("daemonstatus", "listprojects", "listversions", "listspiders", "listjobs", "status")
WRITING = ("addversion", "schedule", "cancel", "delversion", "delproject")
ENDPOINTS = (*READING, *WRITING)


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


def with_auth(name: str, auth: str, method: str = "GET", path: str = "/daemonstatus.json") -> Call:
    return Call(name=name, method=method, path=path, auth=auth)


def raw(name: str, endpoint: str, query: str, method: str = "GET", **more: str) -> Call:
    return Call(name=name, method=method, path=f"/{endpoint}.json", query=query, headers=more)


NOBODY = [
    with_auth("auth-none", ""),
    with_auth("auth-none-options", "", "OPTIONS"),
    with_auth("auth-none-head", "", "HEAD"),
    with_auth("auth-none-post", "", "POST", "/schedule.json"),
    with_auth("auth-none-page", "", path="/"),
    with_auth("auth-none-logs", "", path="/logs/"),
    with_auth("auth-no-colon", basic(USER)),
    with_auth("auth-not-base64", "Basic ?"),
    with_auth("auth-other-scheme", "Digest username=admin"),
    with_auth("auth-scheme-in-capitals", RIGHT.replace("Basic", "BASIC")),
]

WRONG_PASSWORDS = [
    with_auth("auth-wrong-password", basic(f"{USER}:wrong")),
    with_auth("auth-unknown-user", basic("eve:wrong")),
    with_auth("auth-empty-password", basic(f"{USER}:")),
]
"""Weft counts them, and lets whoever has had too many wait."""

METHODS = [
    *(Call(name=f"options-{each}", method="OPTIONS", path=f"/{each}.json") for each in ENDPOINTS),
    *(Call(name=f"post-{each}", method="POST", path=f"/{each}.json") for each in READING),
    *(Call(name=f"get-{each}", path=f"/{each}.json") for each in WRITING),
    *(Call(name=f"put-{each}", method="PUT", path=f"/{each}.json") for each in ("schedule", "listjobs")),
    Call(name="delete-delproject", method="DELETE", path="/delproject.json"),
    Call(name="patch-schedule", method="PATCH", path="/schedule.json"),
    *(Call(name=f"head-{each}", method="HEAD", path=f"/{each}.json") for each in ("daemonstatus", "listprojects")),
    Call(name="head-without-project", method="HEAD", path="/listversions.json"),
    Call(name="head-schedule", method="HEAD", path="/schedule.json"),
]

MISSING = [
    get("listversions-no-project", "listversions"),
    get("listspiders-no-project", "listspiders"),
    get("status-no-job", "status"),
    post("addversion-nothing", "addversion"),
    post("addversion-no-version", "addversion", project="shop"),
    post("addversion-no-egg", "addversion", project="shop", version="1"),
    post("schedule-nothing", "schedule"),
    post("schedule-no-spider", "schedule", project="shop"),
    post("schedule-no-project", "schedule", spider="things"),
    post("cancel-nothing", "cancel"),
    post("cancel-no-job", "cancel", project="shop"),
    post("delversion-nothing", "delversion"),
    post("delversion-no-version", "delversion", project="shop"),
    post("delproject-nothing", "delproject"),
]

UNKNOWN = [
    get("listversions-unknown-project", "listversions", project="nope"),
    get("listspiders-unknown-project", "listspiders", project="nope"),
    get("listjobs-unknown-project", "listjobs", project="nope"),
    get("status-unknown-project", "status", project="nope", job="x"),
    get("status-unknown-job", "status", job="x"),
    post("schedule-unknown-project", "schedule", project="nope", spider="things"),
    post("cancel-unknown-project", "cancel", project="nope", job="x"),
    post("delversion-unknown-project", "delversion", project="nope", version="1"),
    post("delproject-unknown-project", "delproject", project="nope"),
]

READ = [
    Call(
        name="schedule-json-body",
        method="POST",
        path="/schedule.json",
        body=b'{"project": "shop", "spider": "things"}',
        headers={"Content-Type": "application/json"},
    ),
    raw("cancel-in-query", "cancel", "project=nope&job=x", "POST"),
    Call(name="cancel-in-both", method="POST", path="/cancel.json", query="project=nope", form=(("job", "x"),)),
    Call(
        name="cancel-form-counts",
        method="POST",
        path="/cancel.json",
        query="project=nope&job=x",
        form=(("project", "other"),),
    ),
    Call(
        name="cancel-form-with-charset",
        method="POST",
        path="/cancel.json",
        body=b"project=nope&job=x",
        headers={"Content-Type": "application/x-www-form-urlencoded; charset=UTF-8"},
    ),
    Call(
        name="cancel-plain-text",
        method="POST",
        path="/cancel.json",
        body=b"project=nope&job=x",
        headers={"Content-Type": "text/plain"},
    ),
    Call(
        name="cancel-multipart",
        method="POST",
        path="/cancel.json",
        query="job=x",
        form=(("project", "nope"),),
        egg=b"of no use",
    ),
    raw("listspiders-first-project-counts", "listspiders", "project=nope&project=shop"),
    raw("listspiders-name-in-capitals", "listspiders", "Project=nope"),
    raw("listspiders-plus-is-a-space", "listspiders", "project=a+b"),
    raw("listspiders-umlaut", "listspiders", "project=%C3%BC"),
    raw("listspiders-bad-encoding", "listspiders", "project=%ff"),
    raw("listversions-bad-encoding", "listversions", "project=a%c3"),
    raw("schedule-bad-encoding", "schedule", "project=shop&spider=%fe", "POST"),
    raw("cancel-bad-encoding", "cancel", "project=nope&job=%ff", "POST"),
    raw("listspiders-empty-project", "listspiders", "project="),
    raw("listversions-empty-project", "listversions", "project="),
    raw("listversions-blank-query", "listversions", "project"),
    post("schedule-bad-priority", "schedule", project="shop", spider="things", priority="high"),
    post("schedule-empty-priority", "schedule", project="shop", spider="things", priority=""),
    get("listversions-traversal", "listversions", project="../p"),
    get("listversions-parent", "listversions", project=".."),
    get("listversions-slash", "listversions", project="a/b"),
    get("listspiders-traversal", "listspiders", project="../p"),
    post("schedule-traversal", "schedule", project="../p", spider="things"),
    post("delproject-traversal", "delproject", project="../p"),
    post("delversion-traversal", "delversion", project="../p", version="1"),
    deploy("addversion-traversal", "../p", "1", egg()),
]

EGGS = [
    deploy("addversion-not-a-zip", "shop", "1", b"PK is not enough"),
    deploy("addversion-empty-egg", "shop", "1", b""),
    post("addversion-egg-as-text", "addversion", project="shop", version="1", egg="@project.egg"),
    deploy("addversion", "shop", "0.1", egg()),
    get("listversions-dotted", "listversions", project="shop"),
    deploy("addversion-newer", "shop", "0.2", egg()),
    get("listversions", "listversions", project="shop"),
    get("listspiders-of-version", "listspiders", project="shop", _version="0.1"),
    get("listspiders-unknown-version", "listspiders", project="shop", _version="7"),
    get("listspiders-version-traversal", "listspiders", project="shop", _version="../../x"),
    deploy("addversion-again", "shop", "0.1", egg(spiders=ONE_SPIDER)),
    get("listspiders-deployed-again", "listspiders", project="shop", _version="0.1"),
    get("listspiders-of-listed-version", "listspiders", project="shop", _version="0_1"),
    get("listspiders", "listspiders", project="shop"),
    get("listversions-deployed-again", "listversions", project="shop"),
    deploy("addversion-nine", "dotted", "1.9", egg(spiders=ONE_SPIDER)),
    deploy("addversion-ten", "dotted", "1.10", egg()),
    get("listversions-nine-and-ten", "listversions", project="dotted"),
    get("listspiders-nine-and-ten", "listspiders", project="dotted"),
    Call(
        name="addversion-urlencoded",
        method="POST",
        path="/addversion.json",
        query="project=stamped&version=1794742186",
        body=b"egg=" + b"".join(b"%%%02x" % byte for byte in egg(spiders=ONE_SPIDER)),
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    ),
    deploy("addversion-revision", "stamped", "r9", egg(spiders=ONE_SPIDER)),
    get("listversions-revision", "listversions", project="stamped"),
    get("listprojects", "listprojects"),
]

ODD_VERSION = [
    deploy("addversion-version-traversal", "odd", "../2", egg(spiders=ONE_SPIDER)),
    get("listversions-version-traversal", "listversions", project="odd"),
    post("delversion-version-traversal", "delversion", project="odd", version="../2"),
]

BROKEN = [
    deploy("addversion-settings-raise", "broken", "1", egg(settings="raise RuntimeError('no settings today')")),
    get("listversions-settings-raise", "listversions", project="broken"),
    get("listspiders-settings-raise", "listspiders", project="broken"),
    post("delproject-settings-raise", "delproject", project="broken"),
    deploy("addversion-no-entry-point", "bare", "1", egg(entry="")),
    post("delproject-no-entry-point", "delproject", project="bare"),
]

GOING = [
    post("delversion-unknown-version", "delversion", project="shop", version="7"),
    post("delversion-first-version-counts", "delversion", ("version", "8"), project="shop", version="7"),
    post("delversion-listed-name", "delversion", project="shop", version="0_1"),
    get("listversions-one-left", "listversions", project="shop"),
    post("delversion-newest", "delversion", project="dotted", version="1.10"),
    get("listspiders-newest-gone", "listspiders", project="dotted"),
    post("delversion-last", "delversion", project="dotted", version="1.9"),
    get("listprojects-last-version-gone", "listprojects"),
    get("listspiders-project-gone", "listspiders", project="dotted"),
    post("delproject", "delproject", project="stamped"),
    get("listprojects-project-gone", "listprojects"),
    post("delproject-again", "delproject", project="stamped"),
    get("status-of-deleted-project", "status", project="stamped", job="one"),
]

LAST = [post("schedule-job-traversal", "schedule", project="shop", spider="things", jobid="../x")]
"""The only place of Scrapyd for a job is taken by this one for good."""

EMPTY = [
    get("daemonstatus-empty", "daemonstatus"),
    get("listprojects-empty", "listprojects"),
    get("listjobs-empty", "listjobs"),
]

CHANGING_NOTHING: list[Call] = [*NOBODY, *EMPTY, *METHODS, *MISSING, *UNKNOWN, *READ]

STEPS: list[Step] = [
    *EMPTY_PAGES,
    *CHANGING_NOTHING,
    *WRONG_PASSWORDS,
    *EGGS,
    *ODD_VERSION,
    *BROKEN,
    *JOBS,
    *GOING,
    *LAST,
]
CALLS: list[Call] = [step for step in STEPS if isinstance(step, Call)]
