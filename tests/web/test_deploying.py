"""The pages of versions, and the form that deploys one."""

from __future__ import annotations

import asyncio
import html
import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from tests.access.acting import PASSWORD
from tests.conftest import OpenApp, SetClock, on_sqlite
from tests.projects.making import SPIDER, a_version, project, zipped
from tests.waiting import PATIENCE_SECONDS, eventually
from tests.web.browser import Browser, browsing
from tests.web.surfing import Shown, Surfer, surfing
from tests.workers.packages import Quiet, QuietServer
from weft.access.model import EVERYWHERE, Role
from weft.app import App
from weft.tasks.model import ProjectSettings

pytestmark = on_sqlite

DEVELOPER = {EVERYWHERE: Role.DEVELOPER}


async def uploaded(surfer: Surfer, archive: bytes | None, name: str = "shop", **typed: str) -> Shown:
    """Open the form, choose an archive, and press the button."""
    page = await surfer.get(f"/projects/{name}/deploy")
    form = aiohttp.FormData()
    if archive is not None:
        form.add_field("archive", io.BytesIO(archive), filename="shop.zip", content_type="application/zip")
    for field, value in (page.fields | typed).items():
        form.add_field(field, value)
    if archive is None:
        form.add_field("archive", b"", filename="", content_type="application/octet-stream")
    return await surfer.ask("POST", f"/projects/{name}/deploy", data=form)


async def names(app: App) -> list[str]:
    return [each.version for each in await app.projects.versions("shop")]


async def test_an_archive_is_deployed_from_a_page(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=DEVELOPER)
    done = await uploaded(surfer, zipped(project()), version="1.0")
    assert done.leads_to == "/projects/shop/versions/1.0?said=deployed"
    page = await surfer.get(done.leads_to)
    assert "Version 1.0 is deployed" in page.text
    assert "user:ada" in page.text
    found = await app.projects.get("shop", "1.0")
    assert (found.is_current, [each.name for each in found.spiders]) == (True, ["prices"])


async def test_what_will_not_work_stands_on_the_page_of_its_version(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=DEVELOPER)
    spider = (
        "import os\n" + SPIDER + '\n    def start_requests(self):\n        open("/x.csv", "w").write(os.environ["A"])\n'
    )
    done = await uploaded(surfer, zipped(project(spider=spider)), version="1.0")
    text = html.unescape((await surfer.get(done.leads_to)).text)
    assert "shop/spiders/prices.py:18" in text
    assert "Prices defines start_requests(), which Scrapy no longer calls." in text
    assert "It writes to /x.csv, but a run may write only into its own folder." in text
    assert "It reads A from the environment" in text
    await app.tasks.configure("shop", ProjectSettings(spider_env=("A",)))
    assert "It reads A from" not in (await surfer.get(done.leads_to)).text


async def test_code_that_does_not_work_is_told_beside_the_archive_and_nothing_is_kept(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=DEVELOPER)
    page = await uploaded(surfer, zipped(project(spider="import scrapy\n1 / 0 # <b>")), version="1.0")
    assert page.status == 422
    assert 'id="archive-error"' in page.text
    assert "The code was not deployed: its code cannot be imported" in page.text
    assert "ZeroDivisionError" in page.text
    assert "1 / 0 # &lt;b&gt;" in page.text
    assert 'value="1.0"' in page.text
    assert await names(app) == []


async def test_a_name_that_has_other_code_is_told_beside_the_name(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=DEVELOPER)
    await a_version(app, "shop", "1.0")
    page = await uploaded(surfer, zipped(project()), version="1.0")
    assert page.status == 409
    assert 'id="version-error"' in page.text
    assert "is there with other code" in page.text
    odd = await uploaded(surfer, zipped(project()), version="a b")
    assert odd.status == 422
    assert 'id="version-error"' in odd.text


async def test_a_form_without_an_archive_or_with_no_archive_in_it_is_told_so(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=DEVELOPER)
    nothing = await uploaded(surfer, None, version="1.0")
    assert nothing.status == 422
    assert "Choose the archive to deploy." in nothing.text
    text = await uploaded(surfer, b"hello")
    assert text.status == 422
    assert 'id="archive-error"' in text.text
    plain = await surfer.send("/projects/shop/deploy", (await surfer.get("/projects/shop/deploy")).fields)
    assert plain.status == 415
    assert await names(app) == []


async def test_an_archive_that_is_too_large_is_told_so_beside_its_field(another_app: OpenApp) -> None:
    app = await another_app(largest_archive_bytes=1000)
    async with surfing(app) as surfer:
        await surfer.log_in(grants=DEVELOPER)
        page = await uploaded(surfer, b"x" * 3_000_000, version="1.0")
    assert page.status == 413
    assert "An archive may have at most 1000 bytes." in page.text
    assert 'id="archive-error"' in page.text
    assert 'value="1.0"' in page.text


async def test_a_deploy_needs_the_token_of_the_form(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=DEVELOPER)
    page = await uploaded(surfer, zipped(project()), csrf="another")
    assert page.status == 403
    assert await names(app) == []


async def test_who_is_no_developer_cannot_deploy_roll_back_or_delete(app: App, surfer: Surfer) -> None:
    await a_version(app, "shop", "1.0", at=1)
    await a_version(app, "shop", "1.1", at=2)
    await surfer.log_in(grants={"shop": Role.OPERATOR})
    page = await surfer.get("/projects/shop/versions")
    assert "Roll back" not in page.text
    assert "needs the role developer" in (await surfer.get("/projects/shop/deploy")).text
    csrf = (await surfer.get("/projects/shop/versions/1.0")).fields
    form = aiohttp.FormData({"csrf": "x"})
    form.add_field("archive", zipped(project()), filename="shop.zip")
    assert (await surfer.ask("POST", "/projects/shop/deploy", data=form)).status == 403
    assert (await surfer.send("/projects/shop/versions", csrf)).status == 403
    assert (await surfer.send("/projects/shop/versions/1.0", csrf | {"act": "delete"})).status == 403
    assert await names(app) == ["1.1", "1.0"]


async def test_who_is_not_logged_in_is_not_listened_to(app: App, surfer: Surfer) -> None:
    form = aiohttp.FormData()
    form.add_field("archive", zipped(project()), filename="shop.zip")
    answer = await surfer.ask("POST", "/projects/shop/deploy", data=form)
    assert answer.leads_to.startswith("/login")
    assert await names(app) == []


async def test_versions_are_listed_in_their_real_order_and_in_pages(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    for number in range(53):
        await a_version(app, "shop", f"1.{number}")
    page = await surfer.get("/projects/shop/versions")
    assert page.text.count('scope="row"') == 50
    assert page.text.index("/versions/1.10") > page.text.index("/versions/1.52")
    assert page.text.index("/versions/1.9") > page.text.index("/versions/1.10")
    older = html.unescape(page.text.split('class="paging"')[1].split('href="')[1].split('"')[0])
    assert (await surfer.get(older)).text.count('scope="row"') == 3


async def test_a_version_is_shown_beside_the_one_before_it_or_another(
    app: App, surfer: Surfer, clock: SetClock, tmp_path: Path
) -> None:
    await surfer.log_in()
    settings = 'SPIDER_MODULES = ["shop.spiders"]\n'
    for version, delay, spider in (("1.0", 1, SPIDER), ("1.1", 2, SPIDER.replace('"de"', '"fr"'))):
        file = tmp_path / version
        file.write_bytes(zipped(project(settings=settings + f"DOWNLOAD_DELAY = {delay}\n", spider=spider)))
        await app.projects.deploy("shop", file, version)
        clock.forward(1)
    page = await surfer.get("/projects/shop/versions/1.1")
    text = html.unescape(page.text)
    assert "country: str = 'de'" in text
    assert "country: str = 'fr'" in text
    assert "DOWNLOAD_DELAY" in text
    told: Any = msgspec.json.decode((await surfer.get("/projects/shop/versions/1.1.json")).data)
    assert told["changes"]["settings"] == [{"name": "DOWNLOAD_DELAY", "before": 1, "after": 2}]
    other = await surfer.get("/projects/shop/versions/1.1?since=7.7")
    assert other.status == 422
    assert "There is no version 7.7 of project shop" in other.text
    assert (await surfer.get("/projects/shop/versions/9.9")).status == 404


async def test_a_version_is_used_rolled_back_to_and_deleted(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants=DEVELOPER)
    await a_version(app, "shop", "1.0", at=1)
    await a_version(app, "shop", "1.1", at=2, digest="cd" * 32)
    csrf = (await surfer.get("/projects/shop/versions/1.0")).fields
    used = await surfer.send("/projects/shop/versions/1.0", csrf | {"act": "use"})
    assert "Version 1.0 is the current one" in (await surfer.get(used.leads_to)).text
    none = await surfer.send("/projects/shop/versions", csrf)
    assert none.status == 409
    assert "has no version that was deployed before 1.0" in none.text
    await app.projects.use("shop", "1.1")
    back = await surfer.send("/projects/shop/versions", csrf)
    assert back.leads_to == "/projects/shop/versions?said=used&version=1.0"
    refused = await surfer.send("/projects/shop/versions/1.0", csrf | {"act": "delete"})
    assert refused.status == 409
    assert "is the current one; use another one first" in refused.text
    gone = await surfer.send("/projects/shop/versions/1.1", csrf | {"act": "delete"})
    assert "Version 1.1 is deleted." in (await surfer.get(gone.leads_to)).text
    assert await names(app) == ["1.0"]


async def test_a_refused_archive_stays_chosen_in_a_browser_and_the_next_one_is_deployed(
    app: App, surfer: Surfer, tmp_path: Path
) -> None:
    await app.users.create("ada", PASSWORD, DEVELOPER)
    bad, good = tmp_path / "bad.zip", tmp_path / "good.zip"
    bad.write_bytes(zipped(project(spider="1 / 0")))
    good.write_bytes(zipped(project()))
    async with browsing() as browser:
        await browser.open(surfer.address + "/login?next=/projects/shop/deploy")
        await browser.type("#name", "ada")
        await browser.type("#password", PASSWORD)
        await browser.press("main button")
        await choose(browser, bad)
        await browser.type("#version", "7")
        await browser.run("document.querySelector('[data-upload] button').click()")
        await eventually(lambda: browser.run("document.querySelector('#archive-error') !== null"), timeout=60)
        assert "cannot be imported" in await browser.text()
        assert await browser.run("document.querySelector('#archive').files[0].name") == "bad.zip"
        assert await browser.run("document.querySelector('#version').value") == "7"
        await choose(browser, good)
        await browser.press("[data-upload] button")
        await eventually(lambda: browser.run("location.pathname.endsWith('/versions/7')"), timeout=60)
        assert "Version 7 is deployed" in await browser.text()
        assert [each for each in browser.complaints if "422" not in each] == []
    assert await names(app) == ["7"]


WHEEL = "spindle-2.0-py3-none-any.whl"


class SlowIndex(Quiet):
    """An index that has a package, which it takes back once it is let go."""

    def do_GET(self) -> None:
        if self.path.endswith(".whl"):
            self.server.gate.wait(PATIENCE_SECONDS)  # type: ignore[attr-defined]
            self.send_error(404)
            return
        page = f'<a href="/{WHEEL}">{WHEEL}</a>'.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Installations stand still until this is set, and then fail."""
    for name in [*os.environ]:
        if name.startswith("PIP_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")
    with QuietServer(("127.0.0.1", 0), SlowIndex) as server:
        server.gate = gate = threading.Event()  # type: ignore[attr-defined]
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple/")
        yield gate
        gate.set()
        server.shutdown()
        serving.join()


NEEDY = zipped(project() | {"requirements.txt": "spindle==2.0\n"})


async def test_the_steps_of_a_deploy_are_shown_while_it_goes_on_and_what_has_become_of_it(
    app: App, surfer: Surfer, held: threading.Event
) -> None:
    await surfer.log_in(grants=DEVELOPER)
    page = "/projects/shop/deploys/" + "0a" * 8
    before = await surfer.get(page)
    assert "Its archive has not arrived yet" in before.text
    assert "data-live" in before.text
    deploying = asyncio.create_task(uploaded(surfer, NEEDY, progress="0a" * 8))
    text = await eventually(lambda: shows(surfer, page, "collecting spindle==2.0 (package 1)"))
    assert in_order(text, "The archive has arrived", "Unpacking and checking", "Installing its requirements")
    assert 'aria-current="step"' in text
    told: Any = msgspec.json.decode((await surfer.get(page + ".json")).data)
    assert (told["state"], [each["stage"] for each in told["stages"]]) == (
        "running",
        ["received", "checking", "installing"],
    )
    assert told["stages"][-1]["values"] == {"package": "spindle==2.0", "number": "1"}
    held.set()
    assert (await deploying).status == 422
    after = await surfer.get(page)
    assert "its requirements cannot be installed" in after.text
    assert "404 Client Error" in after.text
    assert 'aria-current="step"' not in after.text
    assert "Installing its requirements" in after.text

    await uploaded(surfer, zipped(project()), progress="0b" * 8, version="2")
    done = await surfer.get("/projects/shop/deploys/" + "0b" * 8)
    assert in_order(done.text, "Importing the code", "Keeping the version", "Version 2 is deployed")
    assert 'href="/projects/shop/versions/2"' in done.text
    assert "Installing" not in done.text
    await uploaded(surfer, zipped(project(spider="1 / 0 # <b>")), progress="0c" * 8, version="3")
    failed = await surfer.get("/projects/shop/deploys/" + "0c" * 8)
    assert "its code cannot be imported" in failed.text
    assert "1 / 0 # &lt;b&gt;" in failed.text


async def test_who_is_no_developer_is_not_told_how_far_a_deploy_is(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants={"shop": Role.OPERATOR})
    assert (await surfer.get("/projects/shop/deploys/" + "0a" * 8)).status == 403


async def test_a_browser_shows_the_steps_in_the_form_and_on_a_page_of_their_own(
    app: App, surfer: Surfer, tmp_path: Path, held: threading.Event
) -> None:
    await app.users.create("ada", PASSWORD, DEVELOPER)
    file = tmp_path / "needy.zip"
    file.write_bytes(NEEDY)
    async with browsing() as browser, browsing() as other:
        await entered(browser, surfer, "/projects/shop/deploy")
        page = await browser.run("document.querySelector('.card a[target]').getAttribute('href')")
        await entered(other, surfer, page)
        assert "No such deploy is known here" in await other.text()
        await choose(browser, file)
        await browser.run("document.querySelector('[data-upload] button').click()")
        for each in (browser, other):
            await eventually(lambda each=each: seen(each, "collecting spindle==2.0"))  # type: ignore[misc]
            assert await each.run("document.querySelectorAll('.deploy-steps li').length") == 3
        held.set()
        for each in (browser, other):
            await eventually(lambda each=each: seen(each, "its requirements cannot be installed"))  # type: ignore[misc]
        assert await browser.run("document.querySelector('[data-progress]').hidden")
        assert await browser.run("document.querySelector('.card a[target]').getAttribute('href')") != page
        assert [each for each in [*browser.complaints, *other.complaints] if "422" not in each] == []


async def shows(surfer: Surfer, page: str, text: str) -> str:
    """The page, once it has the text."""
    found = html.unescape((await surfer.get(page)).text)
    return found if text in found else ""


async def seen(browser: Browser, text: str) -> bool:
    return text in await browser.text()


async def entered(browser: Browser, surfer: Surfer, page: str) -> None:
    await browser.open(f"{surfer.address}/login?next={page}")
    await browser.type("#name", "ada")
    await browser.type("#password", PASSWORD)
    await browser.press("main button")


def in_order(text: str, *parts: str) -> bool:
    places = [text.find(part) for part in parts]
    return -1 not in places and places == sorted(places)


async def choose(browser: Browser, file: Path) -> None:
    """Choose a file, as somebody does with a mouse."""
    root = (await browser.say("DOM.getDocument"))["root"]["nodeId"]
    field = (await browser.say("DOM.querySelector", nodeId=root, selector="#archive"))["nodeId"]
    await browser.say("DOM.setFileInputFiles", nodeId=field, files=[str(file)])


async def test_two_presses_roll_back_once(app: App, surfer: Surfer) -> None:
    for at, version in enumerate(("1.0", "1.1", "1.2"), 1):
        await a_version(app, "shop", version, at=at)
    await surfer.log_in(grants={"*": Role.DEVELOPER})
    page = await surfer.get("/projects/shop/versions")
    first = await surfer.send("/projects/shop/versions", page.fields)
    second = await surfer.send("/projects/shop/versions", page.fields)
    assert (first.status, second.status) == (303, 409)
    assert "Meanwhile version 1.1 is the current one." in second.text
    assert [each.version for each in await app.projects.versions("shop") if each.is_current] == ["1.1"]
