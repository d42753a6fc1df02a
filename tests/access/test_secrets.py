"""A secret goes in, reaches the runs of its project, and is found nowhere else."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from tests.conftest import OpenApp, on_sqlite, plain_engine
from tests.runs.acting import new_run
from tests.waiting import eventually
from tests.workers.acting import Failing, Obedient, ended, working
from weft import logging_config
from weft.app import App
from weft.db import schema
from weft.errors import Invalid, NotFound
from weft.ports import Ended
from weft.runs.model import RunState

CANARY = "kAnArY-7f3e9c51"


def dump(app: App) -> str:
    """All that is in the database."""
    with plain_engine(app.config.database_url).connect() as connection:
        return "\n".join(
            repr(row) for table in schema.metadata.sorted_tables for row in connection.execute(select(table))
        )


def seen_on_disk(app: App) -> list[Path]:
    files = [each for each in Path(app.config.data_dir).rglob("*") if each.is_file()]
    return [each for each in files if CANARY.encode() in each.read_bytes()]


@pytest.fixture
def log_lines() -> Iterator[io.StringIO]:
    """What weft logs meanwhile, as it is written."""
    stream, root, ours = io.StringIO(), logging.getLogger(), logging.getLogger("weft")
    before = (root.handlers[:], root.level, ours.level)
    logging_config.configure_logging("json", "debug", stream)
    yield stream
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


async def test_a_secret_is_listed_without_its_value(app: App) -> None:
    await app.secrets.set("shop", "TOKEN", CANARY, by="ann")
    await app.secrets.set("bank", "OTHER", CANARY, by="ann")
    [secret] = await app.secrets.all("shop")
    assert (secret.name, secret.updated_by) == ("TOKEN", "ann")
    assert CANARY not in repr(secret)
    assert CANARY not in dump(app)


async def test_setting_a_secret_again_replaces_it(app: App) -> None:
    await app.secrets.set("shop", "TOKEN", CANARY, by="ann")
    await app.secrets.set("shop", "TOKEN", "another one", by="bob")
    assert await app.secrets.open({("shop", "TOKEN")}) == {("shop", "TOKEN"): "another one"}
    assert [each.updated_by for each in await app.secrets.all("shop")] == ["bob"]


async def test_a_deleted_secret_is_gone(app: App) -> None:
    await app.secrets.set("shop", "TOKEN", CANARY, by="ann")
    await app.secrets.delete("shop", "TOKEN")
    assert await app.secrets.all("shop") == []
    with pytest.raises(NotFound, match="there is no secret TOKEN"):
        await app.secrets.delete("shop", "TOKEN")


@on_sqlite
@pytest.mark.parametrize(("name", "value"), [("no spaces", CANARY), ("", CANARY), ("A" * 101, CANARY), ("T", "abc")])
async def test_a_wrong_name_or_value_is_refused_without_showing_the_value(app: App, name: str, value: str) -> None:
    with pytest.raises(Invalid) as problem:
        await app.secrets.set("shop", name, value, by="ann")
    assert value not in str(problem.value)


async def test_rotation_seals_every_secret_anew_and_loses_none(app: App, another_app: OpenApp) -> None:
    for number in range(150):
        await app.secrets.set("shop", f"S{number}", f"{CANARY}{number}", by="ann")
    first = app.encryptor.newest()
    assert await app.secrets.rotate() == 150
    assert app.encryptor.newest() != first
    other = await another_app()
    opened = await other.secrets.open({("shop", f"S{number}") for number in range(150)})
    assert opened["shop", "S149"] == f"{CANARY}149"
    assert first not in dump(app)


async def test_a_rotation_that_was_stopped_goes_on_without_another_key(app: App) -> None:
    for number in range(3):
        await app.secrets.set("shop", f"S{number}", CANARY, by="ann")
    newest = app.encryptor.make_key()
    assert await app.secrets.rotate() == 3
    assert app.encryptor.newest() == newest
    assert (await app.secrets.open({("shop", "S1")}))["shop", "S1"] == CANARY


async def test_a_run_gets_the_secrets_of_its_project_and_is_stored_without(app: App) -> None:
    await app.secrets.set("shop", "TOKEN", CANARY, by="ann")
    spec = {"env": {"AUTH": "Bearer {{secret:TOKEN}}"}, "argv": ["a", "{{secret:TOKEN}}", "{{ secret }}"]}
    [run] = await app.runs.submit([new_run(project="shop", spec=spec)])
    executor = Obedient()
    async with working(app, executor):
        work = await executor.has_started(run.run_id)
        assert work.spec == {"env": {"AUTH": f"Bearer {CANARY}"}, "argv": ["a", CANARY, "{{ secret }}"]}
        assert (await app.runs.get(run.run_id)).spec.spec == spec
        assert CANARY not in dump(app)
        executor.end(run.run_id)
        await ended(app, run.run_id)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"env": {"A": "{{secret:NONE}}"}}, "project shop has no secret NONE"),
        ({"env": {"A": "{{secret:FOREIGN}}"}}, "project shop has no secret FOREIGN"),
        ({"script": "echo {{secret:TOKEN}}"}, "it is code: give the secret to it by env"),
    ],
)
async def test_a_run_that_asks_for_what_it_may_not_have_fails_with_the_reason(
    app: App, spec: dict[str, Any], why: str
) -> None:
    await app.secrets.set("bank", "FOREIGN", CANARY, by="ann")
    await app.secrets.set("shop", "TOKEN", CANARY, by="ann")
    [run] = await app.runs.submit([new_run(project="shop", spec=spec)])
    executor = Obedient()
    async with working(app, executor):
        done = await ended(app, run.run_id)
    assert (done.state, executor.started) == (RunState.FAILED, [])
    assert why in (done.reason or "")


async def test_what_a_run_says_is_masked_wherever_it_is_kept(app: App, log_lines: io.StringIO) -> None:
    await app.secrets.set("shop", "TOKEN", CANARY, by="ann")
    [run] = await app.runs.submit([new_run(project="shop", spec={"a": "{{secret:TOKEN}}"})])
    executor = Obedient()
    async with working(app, executor):
        work = await executor.has_started(run.run_id)
        for piece in (f"it is {CANARY[:5]}", CANARY[5:], f"\nand {CANARY}\n", f"begun {CANARY[:9]}"):
            work.log.write(piece.encode())

        async def is_seen_live() -> bool:
            return any(b"and" in data for _, data in await app.runs.live_log(run.run_id, 1))

        await eventually(is_seen_live)
        logging.getLogger("weft.test").info("logged %s", CANARY)
        result = {"last_line": f"said {CANARY}", "list": [CANARY], "cut": CANARY[:-2]}
        executor.end(run.run_id, "failed", reason=f"answered {CANARY}", result=result)
        done = await ended(app, run.run_id)
    assert done.reason == "answered ••••"
    assert done.result == {"last_line": "said ••••", "list": ["••••"], "cut": "••••"}
    text = await app.runs.log(run.run_id)
    assert text.decode() == "it is ••••\nand ••••\nbegun ••••"
    assert CANARY[:9] not in dump(app)
    assert seen_on_disk(app) == []
    assert CANARY not in log_lines.getvalue()
    assert "logged ••••" in log_lines.getvalue()


@on_sqlite
async def test_the_fault_of_an_executor_does_not_show_a_secret(app: App, log_lines: io.StringIO) -> None:
    await app.secrets.set("shop", "TOKEN", CANARY, by="ann")
    [run] = await app.runs.submit([new_run(project="shop", spec={"a": "{{secret:TOKEN}}"})])

    def fail() -> Ended:
        raise OSError(f"https://user:{CANARY}@host did not like {CANARY}")

    async with working(app, Failing(fail)):
        done = await ended(app, run.run_id)
    assert "did not like ••••" in (done.reason or "")
    assert CANARY not in log_lines.getvalue()
    assert "executor failed" in log_lines.getvalue()


@on_sqlite
async def test_a_real_command_gets_a_secret_and_cannot_print_it(app: App) -> None:
    await app.secrets.set("shop", "TOKEN", CANARY, by="ann")
    script = """echo "got $T"; test ${#T} = 15 && echo whole; echo "$T" | base64; printf 'ada:%s' "$T" | base64"""
    spec = {"script": script, "env": {"T": "{{secret:TOKEN}}"}}
    [run] = await app.runs.submit([new_run(project="shop", kind="shell", spec=spec)])
    async with working(app):
        done = await ended(app, run.run_id)
    assert done.state is RunState.SUCCEEDED, done.reason
    assert (await app.runs.log(run.run_id)).decode() == "got ••••\nwhole\n••••Cg==\nYWRhOm••••Q==\n"
    assert seen_on_disk(app) == []


@on_sqlite
async def test_of_fifty_secrets_none_is_found_in_any_store(app: App, log_lines: io.StringIO) -> None:
    values = {f"S{number}": f"{CANARY}-{number:02}-{'x' * number}" for number in range(50)}
    for name, value in values.items():
        await app.secrets.set("shop", name, value, by="ann")
    script = "env | sort; env | tr '\\n' ' '; env >&2; exit 3"
    spec = {"script": script, "env": {name: f"{{{{secret:{name}}}}}" for name in values}}
    [run] = await app.runs.submit([new_run(project="shop", kind="shell", spec=spec)])
    async with working(app):
        done = await ended(app, run.run_id)
    text = (await app.runs.log(run.run_id)).decode()
    assert (done.exit_code, text.count("S49=••••")) == (3, 3)
    assert CANARY not in dump(app) + text + log_lines.getvalue()
    assert seen_on_disk(app) == []
