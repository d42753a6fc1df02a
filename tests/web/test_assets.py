"""What browsers load: it is all there, small, kept for ever, and comes along in the packages."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import weft.web.assets
from tests.conftest import on_sqlite
from tests.web.surfing import Surfer
from weft.web.assets import BUILT, Asset, addresses, assets
from weft.web.rendering import environment

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "frontend" / "package-lock.json"
MOST_AT_FIRST = 300_000
IMPORTED = re.compile(rb"""(?:\bfrom|\bimport)\s*["']\./([\w.-]+)["']""")
NAMED = re.compile(r"""static\[['"]([\w.]+)['"]\]""")
HASHED = re.compile(r"/static/(?:[0-9a-f]{12}/[\w.-]+|[\w.]+-[0-9A-Za-z]{8,10}\.\w+)", re.ASCII)


@on_sqlite
async def test_every_file_that_pages_know_is_served_compressed_and_kept_for_ever(surfer: Surfer) -> None:
    assert len(addresses()) >= 6
    for address in addresses().values():
        shown = await surfer.ask("GET", address, headers={"Accept-Encoding": "gzip"})
        plain = await surfer.ask("GET", address, headers={"Accept-Encoding": "identity"})
        assert (shown.status, plain.status) == (200, 200), address
        assert "immutable" in shown.headers["Cache-Control"]
        assert shown.data == plain.data == assets()[address].content
        if assets()[address].compressed is not None:
            assert (shown.headers["Content-Encoding"], "Content-Encoding" in plain.headers) == ("gzip", False)
            assert shown.headers["Vary"] == "Accept-Encoding"


@on_sqlite
async def test_a_file_that_was_taken_away_is_no_fault(
    surfer: Surfer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gone = {"/static/old-AAAAAAAA.js": Asset(tmp_path / "old-AAAAAAAA.js")}
    monkeypatch.setattr("weft.web.site.assets", lambda: gone)
    assert (await surfer.get("/static/old-AAAAAAAA.js")).status == 404
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_the_address_of_a_file_changes_with_what_is_in_it() -> None:
    assert [address for address in assets() if not HASHED.fullmatch(address) and "LEGAL" not in address] == [
        address for address in assets() if address.endswith(".json")
    ]


def test_every_file_that_a_template_names_is_there() -> None:
    loader = environment().loader
    assert loader is not None
    named = {
        name for each in loader.list_templates() for name in NAMED.findall(loader.get_source(environment(), each)[0])
    }
    assert "app.js" in named
    assert named - addresses().keys() == set()


def test_what_a_browser_loads_at_first_is_small() -> None:
    loaded = ["theme.js", "app.js", "styles.css", "icons.svg", "mark.svg"]
    found = {addresses()[name] for name in loaded}
    found |= imported(addresses()["app.js"])
    sizes = {address: len(gzip.compress(assets()[address].content, 6)) for address in found}
    assert sum(sizes.values()) <= MOST_AT_FIRST, sizes


def imported(address: str) -> set[str]:
    """What a script loads before it runs, and what that loads in turn."""
    found: set[str] = set()
    waiting = [address]
    while waiting:
        for name in IMPORTED.findall(assets()[waiting.pop()].content):
            if (each := f"/static/{name.decode()}") not in found:
                found.add(each)
                waiting.append(each)
    return found


def test_scripts_load_only_what_is_there() -> None:
    scripts = [address for address in assets() if address.endswith(".js")]
    lazily = re.compile(rb"""import\(["']\./([\w.-]+)["']\)""")
    wanted = {each for address in scripts for each in imported(address)}
    wanted |= {f"/static/{name.decode()}" for each in scripts for name in lazily.findall(assets()[each].content)}
    assert len(wanted) >= 3
    assert wanted - assets().keys() == set()


def test_the_stylesheet_asks_for_nothing_from_elsewhere() -> None:
    for address, asset in assets().items():
        if address.endswith(".css"):
            assert re.findall(rb"url\(\s*[\"']?(?!data:)([^)\"']+)", asset.content) == []
            assert b"@import" not in asset.content


def test_the_lock_names_no_registry() -> None:
    text = LOCK.read_text(encoding="utf-8")
    assert '"resolved"' not in text
    assert re.findall(r'"[^"]*://[^"]*\.tgz"', text) == []
    assert text.count('"integrity"') >= 10


def test_wheel_and_source_package_have_what_was_built(tmp_path: Path) -> None:
    made = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(made, cwd=ROOT, check=True, capture_output=True, timeout=240)
    [wheel], [source] = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    built = {file.name for file in BUILT.iterdir() if file.suffix != ".map"}
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = set(archive.namelist())
    assert {f"weft/web/static/dist/{name}" for name in built} <= in_wheel
    assert {"weft/web/templates/page.html", "weft/web/words/frame.toml", "weft/web/static/mark.svg"} <= in_wheel
    with tarfile.open(source) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert {f"src/weft/web/static/dist/{name}" for name in built} <= names
    assert {"frontend/package-lock.json", "frontend/build.mjs", "hatch_build.py"} <= names
    assert [name for name in names if "node_modules" in name] == []


def test_a_missing_build_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weft.web.assets, "BUILT", tmp_path)
    with pytest.raises(Exception, match=r"run \./dev setup"):
        addresses.__wrapped__()
