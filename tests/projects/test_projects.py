"""Deploys, from the front door: whole or not at all, pinned, and back again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import update

from tests.cases import for_each
from tests.conftest import SetClock, on_sqlite
from tests.projects.making import SPIDER, a_version, project, zipped
from weft import bubblewrap, user_code
from weft.app import App
from weft.db import schema
from weft.errors import Conflict, Invalid, NotFound, Rejected
from weft.events import newest
from weft.projects.model import Code, code_key
from weft.projects.pinning import codes
from weft.runs.model import NewRun, RunSpec
from weft.tasks.model import ProjectSettings


def archive(folder: Path, name: str = "code.zip", **changed: str | None) -> Path:
    file = folder / name
    file.write_bytes(zipped(project(**changed)))
    return file


async def kinds(app: App) -> list[str]:
    return [each.kind for each in await app.db.read(newest)]


async def names(app: App) -> list[str]:
    return [each.version for each in await app.projects.versions("shop")]


async def pinned_run(app: App, code: Code) -> int:
    spec = RunSpec(spec={"spider": "prices"}, code=code)
    return (await app.runs.submit([NewRun(project="shop", task="prices", kind="noop", spec=spec)]))[0].run_id


async def test_a_deploy_is_kept_current_and_told(app: App, clock: SetClock, tmp_path: Path) -> None:
    made = await app.projects.deploy("shop", archive(tmp_path), "1.0", by="key:ci")
    assert await app.projects.versions("shop") == [made]
    assert (made.is_current, made.format, made.deployed_at, made.deployed_by) == (True, "zip", clock.now, "key:ci")
    assert await app.projects.spiders("shop") == made.spiders
    assert await app.blobs.get(code_key(made.digest)) == zipped(project())
    assert "version_deployed" in await kinds(app)
    assert await app.db.transact(lambda tx: codes(tx, {("shop", None)})) == {("shop", None): made.code}
    assert list((tmp_path / "incoming").iterdir()) == []


@on_sqlite
async def test_whoever_follows_a_deploy_is_told_its_stages_and_what_has_become_of_it(app: App, tmp_path: Path) -> None:
    assert await app.projects.progress("shop", "good") is None
    deploying = asyncio.create_task(app.projects.deploy("shop", archive(tmp_path), "1.0", progress="good"))
    seen = set[str]()
    while not deploying.done():
        if (told := await app.projects.progress("shop", "good")) is not None:
            seen.add(told.state)
        await asyncio.sleep(0.001)
    assert seen == {"running", "deployed"} or seen == {"running"}
    good = await app.projects.progress("shop", "good")
    assert good is not None
    assert (good.state, good.version, good.step.text) == ("deployed", "1.0", "")
    assert [each.stage for each in good.stages] == ["received", "checking", "importing", "keeping"]
    assert await app.projects.progress("other", "good") is None

    for name, spider, version, stages in (
        ("broken", "1 / 0", "1.1", ["received", "checking", "importing"]),
        ("taken", SPIDER + "#", "1.0", ["received"]),
    ):
        with pytest.raises((Rejected, Conflict)) as problem:
            await app.projects.deploy("shop", archive(tmp_path, spider=spider), version, progress=name)
        found = await app.projects.progress("shop", name)
        assert found is not None
        assert (found.state, found.problem, found.version) == ("failed", str(problem.value), "")
        assert ("ZeroDivisionError" in found.traceback) == (name == "broken")
        assert [each.stage for each in found.stages] == stages


@on_sqlite
@pytest.mark.usefixtures("remembered_checks")
async def test_what_has_become_of_deploys_is_kept_of_the_newest_hundred(app: App, tmp_path: Path) -> None:
    file = archive(tmp_path)
    for number in range(105):
        await app.projects.deploy("shop", file, "1.0", progress=f"p{number}")
    kept = [number for number in range(105) if await app.projects.progress("shop", f"p{number}") is not None]
    assert kept == list(range(5, 105))


@on_sqlite
@pytest.mark.usefixtures("remembered_checks")
async def test_what_is_rejected_leaves_nothing(app: App, tmp_path: Path) -> None:
    good = await app.projects.deploy("shop", archive(tmp_path), "1.0", by="ann")
    with pytest.raises(Rejected) as problem:
        await app.projects.deploy("shop", archive(tmp_path, spider="1 / 0"), "1.1", by="ann")
    assert "ZeroDivisionError" in problem.value.traceback
    with pytest.raises(Invalid):
        await app.projects.deploy("shop", archive(tmp_path, cfg=None), "1.2", by="ann")
    assert await app.projects.versions("shop") == [good]
    assert await app.blobs.keys("code") == [code_key(good.digest)]
    assert list((tmp_path / "incoming").iterdir()) == []


@on_sqlite
@pytest.mark.usefixtures("remembered_checks")
async def test_code_of_a_project_that_demands_isolation_is_not_looked_at_without(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tells = "assert open('/proc/1/comm').read() == 'bwrap\\n', 'it was imported with less'\n" + SPIDER
    await app.tasks.configure("shop", ProjectSettings(min_isolation="L2"))
    monkeypatch.setattr(user_code, "newest_landlock", 0)
    with pytest.raises(Rejected, match=r"isolation L2, which is not reached here: files are not protected"):
        await app.projects.deploy("shop", archive(tmp_path, spider=tells), "1.0", by="ann")
    monkeypatch.setattr(user_code, "newest_landlock", 2)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        bubblewrap.is_available.cache_clear()
        with pytest.raises(Rejected, match=r"isolation L2, which is not reached here: L2 needs bubblewrap"):
            await app.projects.deploy("shop", archive(tmp_path, spider=tells), "1.0", by="ann")
    bubblewrap.is_available.cache_clear()
    assert (await app.projects.deploy("shop", archive(tmp_path, spider=tells), "1.0", by="ann")).is_current


@on_sqlite
@pytest.mark.usefixtures("remembered_checks")
async def test_the_same_code_again_changes_nothing_and_other_code_is_refused(app: App, tmp_path: Path) -> None:
    made = await app.projects.deploy("shop", archive(tmp_path), "1.0", by="ann")
    assert await app.projects.deploy("shop", archive(tmp_path), "1.0", by="bob") == made
    assert await app.projects.deploy("shop", archive(tmp_path), by="bob") == made
    with pytest.raises(Conflict, match=r"version 1\.0 of project shop is there with other code"):
        await app.projects.deploy("shop", archive(tmp_path, spider=SPIDER + "#"), "1.0", by="ann")
    assert await app.projects.versions("shop") == [made]


@on_sqlite
@pytest.mark.usefixtures("remembered_checks")
async def test_a_version_without_a_name_is_named_after_the_time(app: App, tmp_path: Path) -> None:
    made = await app.projects.deploy("shop", archive(tmp_path), by="ann")
    assert made.version == "20260601.120000.000"


async def test_two_deploys_of_one_version_at_once_make_one(app: App, tmp_path: Path) -> None:
    file, other = archive(tmp_path), archive(tmp_path, "other.zip", spider=SPIDER + "#")
    deploys = [app.projects.deploy("shop", each, "1.0", by="ann") for each in (file, file, other)]
    answers = await asyncio.gather(*deploys, return_exceptions=True)
    [kept] = await app.projects.versions("shop")
    done = [each for each in answers if not isinstance(each, BaseException)]
    assert done
    assert {each.digest for each in done} == {kept.digest}
    assert all(isinstance(each, Conflict) for each in answers if isinstance(each, BaseException))
    assert await app.blobs.get(code_key(kept.digest)) is not None


async def test_versions_are_used_rolled_back_and_deleted(app: App) -> None:
    for at, name in enumerate(("1.9", "1.10", "1.0rc1"), 1):
        await a_version(app, "shop", name, at=at, digest=f"{at}" * 64)
    assert await names(app) == ["1.10", "1.9", "1.0rc1"]
    assert [each.version for each in await app.projects.versions("shop") if each.is_current] == ["1.0rc1"]
    latest = await app.projects.latest("shop")
    assert latest is not None
    assert latest.version == "1.10"
    assert (await app.projects.rollback("shop")).version == "1.10"
    assert (await app.projects.rollback("shop")).version == "1.9"
    with pytest.raises(Conflict, match=r"no version that was deployed before 1\.9"):
        await app.projects.rollback("shop")
    assert (await app.projects.use("shop", "1.10")).is_current
    with pytest.raises(Conflict, match="use another one first"):
        await app.projects.delete("shop", "1.10")
    await app.projects.delete("shop", "1.9")
    await app.projects.delete("shop", "1.0rc1")
    await app.projects.delete("shop", "1.10")
    assert await names(app) == []
    assert {"version_used", "version_deleted"} <= set(await kinds(app))
    with pytest.raises(NotFound, match="weft deploy"):
        await app.projects.spiders("shop")


async def test_a_version_that_a_live_run_needs_stays(app: App) -> None:
    old = await a_version(app, "shop", "1.0", digest="1" * 64)
    await a_version(app, "shop", "1.1", at=2, digest="2" * 64)
    await app.blobs.put(code_key(old.digest), b"code")
    run_id = await pinned_run(app, old.code)
    with pytest.raises(Conflict, match=f"is needed by run {run_id}, which has not ended"):
        await app.projects.delete("shop", "1.0")
    assert await app.blobs.get(code_key(old.digest)) == b"code"
    await app.runs.cancel(run_id)
    await app.projects.delete("shop", "1.0")
    assert await app.blobs.get(code_key(old.digest)) is None


@on_sqlite
async def test_an_archive_stays_while_any_version_has_it(app: App) -> None:
    for project_name in ("shop", "shop2"):
        made = await a_version(app, project_name, "1.0")
    await app.blobs.put(code_key(made.digest), b"code")
    await app.projects.delete("shop", "1.0")
    assert await app.blobs.get(code_key(made.digest)) == b"code"
    await app.projects.delete("shop2", "1.0")
    assert await app.blobs.keys("code") == []


async def test_codes_of_many_are_told_at_once(app: App) -> None:
    old, new = await a_version(app, "shop", "1.0"), await a_version(app, "shop", "1.1", at=2)
    other = await a_version(app, "bank", "7")
    wanted = {("shop", None), ("shop", "1.0"), ("bank", None), ("bank", "8"), ("nobody", None)}
    found = await app.db.transact(lambda tx: codes(tx, wanted))
    assert found == {("shop", None): new.code, ("shop", "1.0"): old.code, ("bank", None): other.code}


BAD = ["", "..", "a/b", "-x", "x" * 101, "a b", "é"]


@on_sqlite
@for_each("name", BAD)
async def test_names_that_are_none_are_refused(app: App, tmp_path: Path, name: str) -> None:
    with pytest.raises(Invalid, match="project is"):
        await app.projects.deploy(name, archive(tmp_path), "1.0")
    if name:
        with pytest.raises(Invalid, match="version is"):
            await app.projects.deploy("shop", archive(tmp_path), name)
    assert await app.projects.versions("shop") == []


@on_sqlite
@pytest.mark.usefixtures("remembered_checks")
async def test_what_a_deploy_that_was_cut_off_has_left_is_removed_by_the_next(app: App, tmp_path: Path) -> None:
    (tmp_path / "incoming" / "upload-x").mkdir(parents=True)
    await app.projects.deploy("shop", archive(tmp_path), "1.0")
    assert list((tmp_path / "incoming").iterdir()) == []


async def test_spiders_of_some_projects_are_read_without_those_of_others(app: App) -> None:
    for each in ("shop", "bank", "news"):
        await a_version(app, each)
    # Whoever read the spiders of the bank, however many these are, would fail here.
    broken = update(schema.versions).where(schema.versions.c.project == "bank").values(spiders="[")
    await app.db.transact(lambda tx: tx.execute(broken))
    assert list(await app.projects.all_spiders(["shop", "news"])) == ["news", "shop"]
    assert await app.projects.all_spiders([]) == {}
