"""What a project is trusted with, as each of its runs is queued."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import OpenApp
from tests.runs.acting import new_run
from weft.app import App
from weft.errors import Invalid
from weft.projects.model import Code
from weft.runs.model import Run
from weft.tasks.model import ProjectSettings

CODE = Code("1", "a" * 64, "shop.settings")


async def queued(app: App, isolation: str | None, kind: str = "shell", code: Code | None = None) -> Run:
    """A run as a schedule queues it."""
    spec = {} if isolation is None else {"isolation": isolation}
    (run_id,) = await app.db.transact(lambda tx: list(app.runs.queue(tx, [new_run(kind=kind, spec=spec, code=code)])))
    return await app.runs.get(run_id)


async def trust(app: App, **settings: Any) -> None:
    await app.tasks.configure("shop", ProjectSettings(**settings))


@pytest.mark.parametrize("kind", ["shell", "spider"])
async def test_a_run_without_a_sandbox_is_refused_or_gets_one(app: App, kind: str) -> None:
    for isolation in ("L0", "{{secret:LEVEL}}"):
        assert "isolation" not in (await queued(app, isolation, kind)).spec.spec
    with pytest.raises(Invalid, match="project shop may not run without a sandbox"):
        await app.runs.submit([new_run(kind=kind, spec={"isolation": "L0"})])


async def test_a_project_that_may_run_without_a_sandbox_does_so_where_a_task_asks_for_it(app: App) -> None:
    await trust(app, may_run_unsandboxed=True)
    assert (await queued(app, "L0")).spec.spec == {"isolation": "L0"}
    assert (await queued(app, None)).spec.spec == {}
    await trust(app)
    assert (await queued(app, "L0")).spec.spec == {}


async def test_a_command_has_at_least_the_isolation_of_its_project(app: App) -> None:
    await trust(app, min_isolation="L2", may_run_unsandboxed=True)
    for asked in (None, "L0", "L1", "L2"):
        assert (await queued(app, asked)).spec.spec == {"isolation": "L2"}


async def test_the_isolation_of_the_installation_is_the_least_of_each_project(another_app: OpenApp) -> None:
    app = await another_app(min_isolation="L1")
    for asked, least in ((None, "L1"), ("L0", "L1"), ("L1", "L1"), ("L2", "L2")):
        assert (await queued(app, asked)).spec.spec == {"isolation": least}
    for own, least in (("L0", "L1"), ("L1", "L1"), ("L2", "L2")):
        await trust(app, min_isolation=own, may_run_unsandboxed=True)
        assert (await queued(app, "L0")).spec.spec == {"isolation": least}


@pytest.mark.parametrize(
    ("asked", "own", "demanded"),
    [
        (None, None, ""),
        ("L0", None, ""),
        ("L1", None, "L1"),
        ("{{secret:LEVEL}}", None, ""),
        (None, "L2", "L2"),
        ("L2", "L1", "L2"),
        ("L0", "L0", ""),
    ],
)
async def test_the_code_of_a_run_demands_what_the_run_demands(
    app: App, asked: str | None, own: Any, demanded: str
) -> None:
    """It is installed, and may be imported, before the run itself says what it demands."""
    await trust(app, min_isolation=own, may_run_unsandboxed=True)
    run = await queued(app, asked, "spider", CODE)
    assert run.spec.code is not None
    assert run.spec.code.min_isolation == demanded


async def test_whether_packages_may_be_built_is_as_its_project_says_when_a_run_is_queued(app: App) -> None:
    for allowed in (True, False):
        await trust(app, may_build=allowed)
        for before in (True, False):
            code = Code("1", "a" * 64, "shop.settings", may_build=before)
            run = await queued(app, None, "spider", code)
            assert run.spec.code is not None
            assert run.spec.code.may_build is allowed


@pytest.mark.parametrize("kind", ["shell", "spider"])
async def test_the_network_of_a_run_is_that_of_its_project_when_it_is_queued(app: App, kind: str) -> None:
    ports: list[tuple[Any, Any]] = [("none", ()), ((443, 80), (53, 80, 443)), ("all", None)]
    for network, allowed in ports:
        await trust(app, network=network)
        assert (await queued(app, None, kind, CODE if kind == "spider" else None)).spec.ports == allowed
