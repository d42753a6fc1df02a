"""What a spider finds in its environment, as Scrapyd's jobs do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.executing import attempt
from tests.spiders import ready
from weft.adapters.executors._spider_spec import SpiderSpec, environment


def found(folder: Path, args: dict[str, Any]) -> dict[str, str]:
    code = ready(folder)
    return environment(attempt(folder, {"spider": "things", "args": args}, code=code), code)


def test_a_spider_finds_its_project_and_its_settings(tmp_path: Path) -> None:
    variables = found(tmp_path, {})
    assert (variables["SCRAPY_PROJECT"], variables["SCRAPY_SETTINGS_MODULE"]) == ("shop", "shop.settings")
    assert "SCRAPYD_EGG_VERSION" not in variables


def test_a_spider_finds_the_version_that_was_asked_for_as_it_was_spelled(tmp_path: Path) -> None:
    assert found(tmp_path, {"_version": "1_0"})["SCRAPYD_EGG_VERSION"] == "1_0"


@pytest.mark.parametrize("name", ["start-url", "2nd", "class", "größe"])
def test_an_argument_may_have_any_name_that_a_command_line_could_give(name: str) -> None:
    assert SpiderSpec.of({"spider": "things", "args": {name: "x"}}).args == {name: "x"}
