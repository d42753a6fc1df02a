"""`./dev`: what a newcomer runs first says what it does, and what is wrong in one sentence."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path, loader=SourceFileLoader(path.stem, str(path)))
    assert spec is not None
    found = importlib.util.module_from_spec(spec)
    SourceFileLoader(path.stem, str(path)).exec_module(found)
    return found


@pytest.fixture
def dev(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return module(ROOT / "dev")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What builds the pages, without anything that is built or installed."""
    shutil.copy(ROOT / "hatch_build.py", tmp_path)
    ignored = shutil.ignore_patterns("node_modules")
    shutil.copytree(ROOT / "frontend", tmp_path / "frontend", ignore=ignored)
    (tmp_path / "src" / "weft" / "web" / "static").mkdir(parents=True)
    return tmp_path


def build(checkout: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(checkout / "hatch_build.py")]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=120)


def test_a_registry_that_cannot_be_reached_is_told_in_one_sentence(checkout: Path) -> None:
    ended = build(checkout, npm_config_registry="http://127.0.0.1:1/", npm_config_cache=str(checkout / "cache"))
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "ECONNREFUSED" in ended.stderr
    assert "npm_config_registry" in ended.stderr
    assert ended.stdout == ""


def test_a_step_that_fails_is_a_line_of_its_own_and_the_reason_is_below(
    dev: ModuleType, checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dev, "ROOT", checkout)
    monkeypatch.setattr(dev, "PYTHON", sys.executable)
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:1/")
    monkeypatch.setenv("npm_config_cache", str(checkout / "cache"))
    with pytest.raises(SystemExit, match=r"^weft: npm could not fetch .*ECONNREFUSED"):
        dev.build_frontend()
    assert capsys.readouterr().out == "dev: building the pages … failed\n"


def test_npm_gets_the_proxy_and_the_certificates_that_pip_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = module(ROOT / "hatch_build.py")
    for name in ("PIP_CERT", "PIP_PROXY", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "pip.conf").write_text("[global]\ncert = /etc/company.pem\nproxy = http://proxy.example:3128\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    given = builder.network_settings()
    assert given["NODE_EXTRA_CA_CERTS"] == "/etc/company.pem"
    assert given["npm_config_https_proxy"] == given["npm_config_proxy"] == "http://proxy.example:3128"
    monkeypatch.setenv("PIP_CERT", "/etc/other.pem")
    assert builder.network_settings()["NODE_EXTRA_CA_CERTS"] == "/etc/other.pem"


def test_a_step_is_one_line_with_how_long_it_took(dev: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with dev.step("installing 3 packages"):
        pass
    with pytest.raises(OSError, match="full"), dev.step("building the pages"):
        raise OSError("full")
    assert capsys.readouterr().out == "dev: installing 3 packages … 0 s\ndev: building the pages … failed\n"


def test_a_copy_of_weft_in_place_of_the_checkout_is_noticed(
    dev: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dev, "VENV", tmp_path)
    told = tmp_path / "lib" / "python3.11" / "site-packages" / "weft-1.dist-info" / "direct_url.json"
    told.parent.mkdir(parents=True)
    assert not dev.is_editable()
    told.write_text(json.dumps({"url": ROOT.as_uri(), "dir_info": {"editable": True}}))
    assert dev.is_editable()
    told.write_text(json.dumps({"url": ROOT.as_uri(), "dir_info": {}}))
    assert not dev.is_editable()


def test_extras_are_installed_at_the_versions_of_the_tests(dev: ModuleType) -> None:
    pinned = dev.pins(ROOT / "requirements" / "dev.txt")
    assert any(pin.startswith("pyarrow==") for pin in pinned)
    assert [pin for pin in pinned if "--hash" in pin or "\\" in pin] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["all"], "setup does not know 'all'"),
        (["core", "--extra"], "setup does not know 'core --extra'"),
        (["--extra", "parket"], "weft has no extra parket; it has "),
    ],
)
def test_setup_refuses_what_it_does_not_know(
    dev: ModuleType, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert dev.setup(arguments) == 2
    assert said in capsys.readouterr().err
