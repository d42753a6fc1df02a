"""Deploys from the command line."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commanding import Shell
from tests.projects.making import SPIDER, project, written, zipped


@pytest.mark.usefixtures("remembered_checks")
def test_a_folder_is_deployed_listed_and_rolled_back(shell: Shell, tmp_path: Path) -> None:
    folder = written(tmp_path / "code", project())
    first = shell.ok("deploy", str(folder), "--code-version", "1.9")
    assert first.lines[0] == "version 1.9 of project shop is current; it has 1 spider"
    assert "country: str = 'de', …" in first.out
    shell.ok("deploy", str(folder), "--code-version", "1.10")
    listed = shell.document("versions", "list", "--project", "shop")
    assert [(each["version"], each["is_current"]) for each in listed] == [("1.10", True), ("1.9", False)]
    assert "version 1.9 of project shop is current" in shell.ok("versions", "rollback", "--project", "shop").out
    assert "prices" in shell.ok("spiders", "shop").out
    shell.ok("versions", "delete", "1.10", "--project", "shop", "--yes")


def test_what_will_not_work_is_told_with_file_and_line_until_it_is_put_right(shell: Shell, tmp_path: Path) -> None:
    spider = (
        SPIDER
        + """
    def start_requests(self):
        with open("/data/prices.csv", "w"):
            pass
"""
    )
    settings = 'import os\nSPIDER_MODULES = ["shop.spiders"]\nDB = os.environ.get("MY_DB")\n'
    folder = written(tmp_path / "code", project(spider=spider, settings=settings))
    reads = "it reads MY_DB from the environment, which does not reach runs unless spider_env names it"
    told = shell.ok("deploy", str(folder), "--code-version", "1").lines
    assert told[told.index("3 warnings:") :] == [
        "3 warnings:",
        f"  shop/settings.py:3: {reads}",
        "  shop/spiders/prices.py:16: Prices defines start_requests(), which Scrapy no longer calls; weft calls it, "
        "define start()",
        "  shop/spiders/prices.py:17: it writes to /data/prices.csv, but a run may write only into its own folder; "
        "yield items instead",
    ]
    (tmp_path / "tasks.toml").write_text('[projects.shop]\nspider_env = ["MY_*"]\n')
    shell.ok("tasks", "apply", str(tmp_path / "tasks.toml"), "--yes")
    again = shell.document("deploy", str(folder), "--code-version", "1")
    assert [each["code"] for each in again["warnings"]] == ["start_requests", "outside_folder"]


def test_code_that_does_not_work_is_shown_with_its_traceback(shell: Shell, tmp_path: Path) -> None:
    folder = written(tmp_path / "code", project(spider="1 / 0"))
    answer = shell("deploy", str(folder))
    assert answer.code == 1
    assert "prices.py" in answer.err
    assert answer.err.splitlines()[-1].startswith("the code was not deployed: its code cannot be imported")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("lxml ; python_version > '3' --index-url http://me:hush@evil.test/", "the option --index-url is not allowed"),
        ("lxml --global-option=x", "the option --global-option is not allowed"),
        ("lxml @ https://me:hush@evil.test/lxml.whl", "a URL is not allowed"),
        ("lxml lxml", "'lxml lxml' is no requirement, such as lxml>=5"),
    ],
)
def test_requirements_that_may_not_be_are_told_with_their_line(
    shell: Shell, tmp_path: Path, line: str, why: str
) -> None:
    folder = written(tmp_path / "code", {**project(), "requirements.txt": f"# what it needs\nscrapy\n{line}\n"})
    answer = shell("deploy", str(folder))
    assert answer.code == 1
    told = answer.err.splitlines()[-1]
    assert told.startswith("the code was not deployed: its requirements cannot be installed")
    assert f"requirements.txt, line 3: {why}" in answer.err
    assert "hush" not in answer.err
    assert "Traceback" not in answer.err
    assert shell.document("versions", "list", "--project", "shop") == []


def test_the_traceback_begins_in_the_code_and_names_its_files_as_they_are_there(shell: Shell, tmp_path: Path) -> None:
    folder = written(tmp_path / "code", project(spider="def broken(:"))
    told = shell("deploy", str(folder)).err.splitlines()
    assert told[0].strip() == 'File "shop/spiders/prices.py", line 1'
    folder = written(tmp_path / "other", project(spider="1 / 0"))
    told = shell("deploy", str(folder)).err.splitlines()
    assert told[1].strip() == 'File "shop/spiders/prices.py", line 1, in <module>'


def test_a_check_that_takes_long_is_told(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path / "code", project())
    monkeypatch.setattr("weft.cli.deploy.PATIENCE_SECONDS", 0.0)
    assert shell("deploy", str(folder)).err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert shell("deploy", str(folder)).err.startswith("the code is being checked; ")


def test_what_git_complains_about_is_told_not_its_advice(shell: Shell, tmp_path: Path) -> None:
    answer = shell("deploy", f"git+file://{tmp_path}/nowhere@v1")
    assert answer.err.startswith("git cannot do this: fatal: '")
    assert "does not appear to be a git repository" in answer.err


@pytest.mark.usefixtures("remembered_checks")
def test_the_name_of_an_archive_tells_project_and_version(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "bank-2.1.zip"
    file.write_bytes(zipped(project()))
    assert shell.ok("deploy", str(file)).lines[0].startswith("version 2.1 of project bank is current")


@pytest.mark.parametrize("source", ["nowhere", "empty", "a.txt", "git+ftp://x/y", "git+https://x/y@-z"])
def test_what_cannot_be_deployed_is_refused(shell: Shell, tmp_path: Path, source: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.txt").write_text("x")
    answer = shell("deploy", source)
    assert (answer.code, answer.err.startswith("PATH is")) == (2, True), answer


@pytest.mark.usefixtures("remembered_checks")
def test_a_repository_is_deployed_at_a_tag(shell: Shell, tmp_path: Path) -> None:
    git = shutil.which("git")
    assert git is not None
    folder = written(tmp_path / "repo", project())
    who = ["-c", "user.name=ann", "-c", "user.email=ann@example.org"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "first"], ["tag", "v1.0"]):
        subprocess.run([git, "-C", str(folder), *words], check=True)
    (folder / "scrapy.cfg").unlink()
    subprocess.run([git, "-C", str(folder), *who, "commit", "-qam", "broken"], check=True)
    told = shell.ok("deploy", f"git+file://{folder}@v1.0").lines[0]
    assert told.startswith("version v1.0 of project shop is current")
