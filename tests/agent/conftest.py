from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.spiders import write_project
from tests.agent.starting import Zygote, zygote


@pytest.fixture(scope="session")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_project(tmp_path_factory.mktemp("code"))


@pytest.fixture(scope="session")
def warm(code: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """A zygote of the project, shared: a run changes nothing in it."""
    with zygote(code, tmp_path_factory.mktemp("runs")) as ready:
        assert ready.first.get("ready"), ready.first
        yield ready
