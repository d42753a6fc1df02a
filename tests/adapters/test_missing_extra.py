"""A crawl that reaches a worker without the extra that it needs ends at once, and says what to install."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.executing import Log, attempt
from weft.adapters.executors.crawl import CrawlExecutor


@pytest.mark.parametrize(
    ("keeping", "field"),
    [
        ({"text": True}, "keeping.text"),
        ({"markdown": True}, "keeping.markdown"),
        ({"fields": {"sku": {"jsonpath": "$.sku"}}}, "keeping.fields.sku"),
    ],
)
async def test_a_crawl_without_its_extra_fails_for_good_and_starts_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeping: dict[str, Any], field: str
) -> None:
    for package in ("turbohtml", "jsonpath_rfc9535"):
        monkeypatch.setitem(sys.modules, package, None)
    log = Log()
    spec = {"urls": ["https://site.example/"], "fetching": {"contact": "us@weft.example"}, "keeping": keeping}
    ended = await CrawlExecutor().execute(attempt(tmp_path, spec, log=log))
    assert (ended.outcome, ended.permanent, bytes(log.data)) == ("failed", True, b"")
    assert ended.reason == (
        f"{field}: this needs a package that is not installed: pip install 'weft[text]' where weft and its workers run"
    )
    assert list(tmp_path.iterdir()) == []
