"""Calls for pages and files, before there is anything and after the first job has finished."""

from __future__ import annotations

from tests.scrapyd.asking import Call
from tests.scrapyd.steps import page

EMPTY_PAGES = [
    page("home-empty", "/"),
    page("jobs-page-empty", "/jobs"),
    page("home-head", "/", "HEAD"),
    page("home-post", "/", "POST"),
    page("jobs-page-post", "/jobs", "POST"),
    page("unknown-path", "/nope"),
    page("unknown-endpoint", "/nope.json"),
    page("unknown-below-endpoint", "/listprojects.json/x"),
    page("jobs-page-slash", "/jobs/"),
    page("double-slash", "//listprojects.json"),
    page("logs-empty", "/logs/"),
    page("items-empty", "/items/"),
]

ITEMS = "/items/shop/things/one.jl"
LOG = "/logs/shop/things/one.log"
BEHIND = {"X_Forwarded_Prefix": "/behind"}

FILES = [
    page("logs", "/logs/"),
    page("logs-no-slash", "/logs"),
    page("logs-of-project", "/logs/shop/"),
    page("logs-of-project-no-slash", "/logs/shop"),
    page("logs-of-spider", "/logs/shop/things/"),
    page("items", "/items/"),
    page("items-of-project", "/items/shop/"),
    page("items-of-spider", "/items/shop/things/"),
    page("log", LOG),
    page("log-head", LOG, "HEAD"),
    page("log-post", LOG, "POST"),
    page("logs-post", "/logs/", "POST"),
    page("items-file", ITEMS),
    page("items-file-head", ITEMS, "HEAD"),
    page("range-first", ITEMS, Range="bytes=0-9"),
    page("range-last", ITEMS, Range="bytes=-5"),
    page("range-from", ITEMS, Range="bytes=90-"),
    page("range-longer-than-file", ITEMS, Range="bytes=90-5000"),
    page("range-last-more-than-file", ITEMS, Range="bytes=-5000"),
    page("range-behind-end", ITEMS, Range="bytes=1000-"),
    page("range-backwards", ITEMS, Range="bytes=9-2"),
    page("range-of-lines", ITEMS, Range="lines=1-2"),
    page("range-twice", ITEMS, Range="bytes=0-1,3-4"),
    page("log-unknown-project", "/logs/nope/"),
    page("log-unknown-spider", "/logs/shop/nope/"),
    page("log-unknown-job", "/logs/shop/things/nope.log"),
    page("log-below-file", f"{LOG}/x"),
    page("items-unknown-job", "/items/shop/things/nope.jl"),
    page("logs-traversal", "/logs/../eggs/"),
    page("logs-encoded-traversal", "/logs/%2e%2e/eggs/"),
    page("log-stats", "/logs/stats.json"),
    page("log-stats-of-job", "/logs/shop/things/one.json"),
    page("home", "/"),
    page("home-behind-prefix", "/", **BEHIND),
    page("jobs-page-finished", "/jobs"),
]

PAGES_WITH_ALL_STATES: list[Call] = [
    page("jobs-page", "/jobs"),
    page("jobs-page-behind-prefix", "/jobs", **BEHIND),
    page("logs-of-two-spiders", "/logs/shop/"),
    page("log-of-running", "/logs/shop/waits/two.log"),
]
