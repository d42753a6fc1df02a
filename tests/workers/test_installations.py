"""What an installation takes, what it reaches, and what it says where it fails."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases import for_each
from tests.servers.certificate import self_signed
from tests.workers.packages import digest, indexed, requirements, sdist, served, wheel, wheels
from weft import user_code
from weft.errors import CodeNotReady
from weft.projects.deploy_progress import DeployProgress, reporting_to
from weft.workers import package_index
from weft.workers.environments import Environments, read_requirements
from weft.workers.package_index import serving_proxy

Patch = pytest.MonkeyPatch


@pytest.fixture
def bare(monkeypatch: Patch, tmp_path: Path) -> Patch:
    """A machine whose pip is configured with nothing."""
    for name in list(os.environ):
        if name.startswith("PIP_") or name.lower().endswith("_proxy") or name in package_index.CERTIFICATES:
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return monkeypatch


@pytest.fixture
def found_in(bare: Patch, tmp_path: Path) -> Path:
    """A folder of packages that this machine's pip is configured with, and no index."""
    bare.setenv("PIP_NO_INDEX", "1")
    bare.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return wheels(tmp_path / "wheels")


@pytest.fixture
def listener() -> Iterator[int]:
    """Something on this machine that is no package index."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


async def refusal(tmp_path: Path, *lines: str, may_build: bool = False) -> str:
    with pytest.raises(CodeNotReady) as refused:
        await installed(tmp_path, *lines, may_build=may_build)
    return refused.value.why


async def installed(tmp_path: Path, *lines: str, may_build: bool = False) -> Path:
    needs = requirements(tmp_path / "requirements.txt", *lines)
    return await Environments(tmp_path / "environments").python_for(*needs, may_build=may_build)


@for_each(
    ("line", "why"),
    [
        ("--index-url https://evil.test/simple", "the option --index-url is not allowed"),
        ("-i https://evil.test/simple", "the option -i is not allowed"),
        ("--extra-index-url=https://me:hush@evil.test", "the option --extra-index-url is not allowed"),
        ("--find-links /srv", "the option --find-links is not allowed"),
        ("-f /srv", "the option -f is not allowed"),
        ("--no-binary :all:", "the option --no-binary is not allowed"),
        ("--pre", "the option --pre is not allowed"),
        ("--trusted-host evil.test", "the option --trusted-host is not allowed"),
        ("-e .", "the option -e is not allowed"),
        ("-r other.txt", "the option -r is not allowed"),
        ("-c other.txt", "the option -c is not allowed"),
        *(
            (f"lxml{marker} {option}", f"the option {re.split('[= ]', option)[0]} is not allowed")
            for marker in ("", "==5.0", " ; python_version > '3'", "[html5]>=5;(os_name=='posix')")
            for option in (
                "--config-settings=a=b",
                "--global-option=x",
                "--global-option x",
                "--no-binary=:all:",
                "--index-url http://me:hush@evil.test/",
                "-C a=b",
            )
        ),
        ("lxml ; os_name != 'x --global-option=x'", "the option --global-option is not allowed"),
        ("lxml --hash=sha256:00ff --global-option=x", "the option --global-option is not allowed"),
        ("lxml ; os_name != '${HOME}'", "is no requirement"),
        ("lxml ; os_name != 'x # y'", "is no requirement"),
        ("lxml ; nonsense > '3'", "is no requirement"),
        ("lxml ; " + "(" * 5_000, "is no requirement"),
        ("lxml --hash=sha256:zz", "is no requirement"),
        ("lxml===5.zip", "a file or a folder is not allowed"),
        ("https://evil.test/lxml.whl", "a URL is not allowed"),
        ("lxml @ https://evil.test/lxml.whl", "a URL is not allowed"),
        ("lxml@https://evil.test/lxml.whl", "a URL is not allowed"),
        ("lxml @ file:///srv/lxml", "a URL is not allowed"),
        ("git+https://me:hush@evil.test/x.git#egg=x", "a URL is not allowed"),
        ("./lxml", "a file or a folder is not allowed"),
        ("/srv/lxml", "a file or a folder is not allowed"),
        ("~/lxml", "a file or a folder is not allowed"),
        (".", "a file or a folder is not allowed"),
        ("lxml-5.0-py3-none-any.whl", "a file or a folder is not allowed"),
        ("lxml==${PIP_INDEX_URL}", "is no requirement"),
        ("lxml lxml", "is no requirement"),
    ],
)
def test_requirements_that_are_more_than_names_are_refused_with_their_line(tmp_path: Path, line: str, why: str) -> None:
    file, _ = requirements(tmp_path / "requirements.txt", "# what it needs", "scrapy", line)
    with pytest.raises(CodeNotReady) as refused:
        read_requirements(file)
    assert f"requirements.txt, line 3: {why}" in refused.value.why or (
        refused.value.why.startswith("requirements.txt, line 3: ") and why in refused.value.why
    )
    assert "hush" not in refused.value.why


def test_requirements_that_name_packages_are_taken_without_their_comments(tmp_path: Path) -> None:
    text = (
        "# coding: utf-7\n\nScrapy>=2.11,<3  # the framework\nlxml [html5, x] ~= 5.0 ; python_version >= '3.8'\n"
        "thread==1.0 \\\n    --hash=sha256:00ff \\\n    --hash=sha256:11ee\n  zope.interface\nattrs (>=20)\n"
    )
    (tmp_path / "requirements.txt").write_text(text)
    assert read_requirements(tmp_path / "requirements.txt") == [
        "Scrapy<3,>=2.11",
        'lxml[html5,x]~=5.0 ; python_version >= "3.8"',
        "thread==1.0 --hash=sha256:00ff --hash=sha256:11ee",
        "zope.interface",
        "attrs>=20",
    ]


async def test_requirements_are_installed_as_they_were_understood(tmp_path: Path, found_in: Path) -> None:
    pins = [
        f"{name} ; (python_version > '3' or os_name == 'x') and sys_platform != 'win32'"
        f" --hash=sha256:{digest((found_in / f'{file}-py3-none-any.whl').read_bytes())}"
        for name, file in (("Thread == 1.0", "thread-1.0"), ("scrapy (==2.13.0)", "scrapy-2.13.0"))
    ]
    python = await installed(tmp_path, *pins, f"nowhere==1 ; os_name == 'x' --hash=sha256:{'0' * 64}")
    assert {path.name for path in python.parents[1].glob("lib/*/site-packages/*.dist-info")} == {
        "thread-1.0.dist-info",
        "scrapy-2.13.0.dist-info",
    }


async def test_what_is_there_only_as_source_is_not_built(tmp_path: Path, found_in: Path) -> None:
    sdist(found_in, "source", f"open({str(tmp_path / 'built')!r}, 'w').write('x')\n")
    why = await refusal(tmp_path, "source")
    assert why.startswith(
        "there is no wheel of source for this Python and machine: its name may be wrong; what is there only as source"
    )
    assert not (tmp_path / "built").exists()


PROBE = """
import json, os, socket
def tried(act):
    try:
        act()
    except OSError:
        return False
    return True
def tried_text(path):
    try:
        return open(path).read()
    except OSError:
        return ""
def speak(port, kind=socket.SOCK_STREAM, host="127.0.0.1"):
    with socket.socket(socket.AF_INET, kind) as it:
        it.connect((host, port))
        it.send(b"hello")
raise SystemExit("FOUND " + json.dumps({
    "data": tried(lambda: open(DATA).read()),
    "shadow": tried(lambda: open("/etc/shadow").read()),
    "environ": tried(lambda: open(f"/proc/{WORKER}/environ").read()),
    "write": tried(lambda: open(DATA + "2", "w")),
    "cache of packages": tried(lambda: open(CACHE + "/poison", "w")),
    "connect": tried(lambda: speak(PORT)),
    "datagram": tried(lambda: speak(53, socket.SOCK_DGRAM)),
    "unix": tried(lambda: socket.socket(socket.AF_UNIX)),
    "settings": "hidden" in repr(dict(os.environ)),
    "as important as weft": os.getpriority(os.PRIO_PROCESS, 0) < 10 or "nice 0" in tried_text("/proc/self/autogroup"),
}))
"""


@pytest.mark.parametrize("landlock", [6, 2])
async def test_what_is_built_is_built_in_the_sandbox(
    tmp_path: Path, found_in: Path, bare: Patch, listener: int, landlock: int
) -> None:
    """A kernel without rules for ports leaves the connection, which is told; everything else holds there too."""
    bare.setenv("WEFT_SECRET_KEY", "hidden")
    bare.setattr(user_code, "newest_landlock", landlock)
    (tmp_path / "weft.db").write_text("of weft")
    (tmp_path / "package-cache").mkdir()
    given = f"DATA, WORKER, PORT = {str(tmp_path / 'weft.db')!r}, {os.getpid()}, {listener}\n"
    given += f"CACHE = {str(tmp_path / 'package-cache')!r}\n"
    sdist(found_in, "evil", given + PROBE)
    kept = Environments(tmp_path / "environments")
    with pytest.raises(CodeNotReady) as refused:
        await kept.python_for(*requirements(tmp_path / "needs.txt", "evil"), may_build=True)
    found = re.search(r"FOUND (\{.*?\})", refused.value.why)
    assert found, refused.value.why
    reached = {name for name, was in json.loads(found[1]).items() if was}
    assert reached == ({"connect"} if landlock == 2 else set())


async def test_a_file_that_python_executes_when_it_starts_reaches_nothing(tmp_path: Path, found_in: Path) -> None:
    """A wheel may bring a .pth file; nobody executes it outside of the sandbox."""
    made = wheel(found_in, "starter", "1.0")
    with zipfile.ZipFile(made, "a") as opened:
        for name in ("outside", "package-cache/poison"):
            opened.writestr(f"{len(name)}.pth", f"import os; os.mkdir({str(tmp_path / name)!r})\n")
    await installed(tmp_path, "starter")
    assert not (tmp_path / "outside").exists()
    assert (tmp_path / "package-cache").exists()
    assert not (tmp_path / "package-cache" / "poison").exists()


async def test_whoever_follows_an_installation_is_told_each_step(tmp_path: Path, found_in: Path) -> None:
    progress, seen = DeployProgress(), list[str]()
    with reporting_to(progress):
        installing = asyncio.create_task(installed(tmp_path, "thread==1.0", "scrapy==2.13.0"))
    while not installing.done():
        if (step := progress.step).text not in seen[-1:]:
            seen.append(step.text)
        await asyncio.sleep(0.001)
    await installing
    steps = [text for text in seen if text]
    assert steps[0] == "making an environment for its requirements"
    assert any(re.fullmatch(r"collecting .*thread.* \(package \d\)", text) for text in steps), steps
    assert steps[-1] == "looking at what was installed"


async def test_an_index_on_the_network_is_reached_over_the_proxy(tmp_path: Path, bare: Patch) -> None:
    index = indexed(tmp_path / "index", wheels(tmp_path / "wheels"))
    with served(index) as url:
        bare.setenv("PIP_INDEX_URL", url)
        python = await installed(tmp_path, "thread==1.0")
    assert python.exists()


@pytest.mark.parametrize("variable", ["PIP_CERT", "REQUESTS_CA_BUNDLE"])
async def test_an_index_whose_certificate_this_machine_trusts_is_reached(
    tmp_path: Path, bare: Patch, variable: str
) -> None:
    """In a tunnel through the proxy; the file with the certificate is read in the sandbox."""
    index = indexed(tmp_path / "index", wheels(tmp_path / "wheels"))
    (tmp_path / "ca").mkdir()
    certificate = self_signed(tmp_path / "ca")
    with served(index, certificate) as url:
        bare.setenv("PIP_INDEX_URL", url)
        bare.setenv(variable, str(certificate[0]))
        python = await installed(tmp_path, "thread==1.0")
    assert list(python.parents[1].glob("lib/*/site-packages/thread.py"))


async def test_an_index_whose_certificate_is_not_trusted_is_told_with_what_helps(tmp_path: Path, bare: Patch) -> None:
    index = indexed(tmp_path / "index", wheels(tmp_path / "wheels"))
    with served(index, self_signed(tmp_path)) as url:
        bare.setenv("PIP_INDEX_URL", url)
        bare.setenv("PIP_RETRIES", "0")
        why = await refusal(tmp_path, "thread==1.0")
    place = url.removeprefix("https://").removesuffix("/simple/")
    assert why.startswith(f"the certificate of the package index {place} is not trusted; PIP_CERT names a file"), why


async def test_a_package_of_the_index_of_this_machine_is_installed(tmp_path: Path, monkeypatch: Patch) -> None:
    """The true one, as pip is configured here, over TLS; only Scrapy, which each environment has, is one of ours."""
    wheel(tmp_path, "scrapy", "9999.0")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    settings = package_index.configured().settings
    if settings.get("no-index") and os.environ.get("CI") != "true":
        pytest.skip("pip is configured with no index on this machine")
    try:
        python = await installed(tmp_path, "six==1.17.0", "scrapy==9999.0")
    except CodeNotReady as problem:
        if os.environ.get("CI") != "true" and problem.why.startswith("the package index cannot be reached"):
            pytest.skip(problem.why.partition(" | ")[0])
        raise
    assert list(python.parents[1].glob("lib/*/site-packages/six-1.17.0.dist-info"))


async def test_an_index_that_leads_elsewhere_is_told_with_the_host(tmp_path: Path, bare: Patch, listener: int) -> None:
    page = tmp_path / "index" / "simple" / "thread"
    page.mkdir(parents=True)
    elsewhere = f"http://localhost:{listener}/thread-1.0-py3-none-any.whl"
    (page / "index.html").write_text(f'<a href="{elsewhere}">thread-1.0-py3-none-any.whl</a>')
    with served(tmp_path / "index") as url:
        bare.setenv("PIP_INDEX_URL", url)
        bare.setenv("PIP_RETRIES", "0")
        why = await refusal(tmp_path, "thread")
    assert why.startswith("localhost is no host of the package index; the setting package_hosts allows further ones")


@for_each(
    ("lines", "why"),
    [
        (["nowhere"], "there is no wheel of nowhere for this Python and machine: its name may be wrong"),
        (["thread==9"], "no version of thread==9 fits; there are 1.0, 2.0"),
        (["thread==1.0", "thread==2.0"], "its requirements contradict each other: thread==1.0 and thread==2.0 ("),
        (["needy", "thread==2.0"], "needy 1.0 depends on thread<2"),
        ([f"nowhere-{number}" for number in range(10_000)], "there is no wheel of nowhere-0 for this"),
    ],
)
async def test_what_cannot_be_installed_is_told_in_one_sentence(
    tmp_path: Path, found_in: Path, lines: list[str], why: str
) -> None:
    wheel(found_in, "needy", "1.0", needs="thread<2")
    told = await refusal(tmp_path, *lines)
    assert why in told.partition(" | ")[0], told


async def test_an_index_that_cannot_be_reached_is_told_with_its_host(tmp_path: Path, bare: Patch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    bare.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple/")
    bare.setenv("PIP_RETRIES", "0")
    why = await refusal(tmp_path, "thread")
    assert why.startswith(f"the package index cannot be reached: 127.0.0.1:{port} (")
    assert "Connect" in why.partition(" | ")[0]


@for_each(
    ("data", "why"),
    [
        (b"scrapy\n# caf\xe9\n", "requirements.txt, line 2: it is no text in UTF-8"),
        (b"\xff\xfes\0c\0r", "requirements.txt, line 1: it is no text in UTF-16, as its first bytes say"),
        (b"scrapy\0\n", "requirements.txt, line 1: 'scrapy\\x00' is no requirement"),
        (b"\n" * 9_999 + b"--pre\n", "requirements.txt, line 10000: the option --pre is not allowed"),
        (b"#" * 1_000_001, "its requirements.txt is larger than 1000000 bytes"),
        (b"a" + b" " * 900_000 + b"b\n", "requirements.txt, line 1: 'a b' is no requirement"),
        (b"a [" + b" ," * 400_000 + b"\n", "requirements.txt, line 1: 'a [ , ,"),
    ],
)
def test_a_broken_file_of_requirements_is_refused_at_once(tmp_path: Path, data: bytes, why: str) -> None:
    file = tmp_path / "requirements.txt"
    file.write_bytes(data)
    began = time.process_time()
    with pytest.raises(CodeNotReady) as refused:
        read_requirements(file)
    assert why in refused.value.why
    assert time.process_time() - began < 5


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
async def test_ten_thousand_lines_in_any_encoding_that_says_so_are_installed(
    tmp_path: Path, found_in: Path, encoding: str
) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("# é\r\n" * 9_998 + "thread==1.0\r\nthread==1.0", encoding=encoding)
    assert read_requirements(file) == ["thread==1.0", "thread==1.0"]
    if encoding == "utf-16":
        lock = digest(file.read_bytes())
        assert (await Environments(tmp_path / "environments").python_for(file, lock)).exists()


async def test_another_hash_is_told_in_one_sentence(tmp_path: Path, found_in: Path) -> None:
    good = digest((found_in / "scrapy-2.13.0-py3-none-any.whl").read_bytes())
    pins = [f"scrapy==2.13.0 --hash=sha256:{good}", f"thread==1.0 --hash=sha256:{'0' * 64}"]
    assert "has the sha256" in (why := await refusal(tmp_path, *pins)), why
    assert "and its requirements want 0000000000000000…" in why


async def test_a_build_that_needs_a_compiler_is_told(tmp_path: Path, found_in: Path) -> None:
    statements = (
        "def build_wheel(*_):\n    raise SystemExit(\"error: command 'gcc' failed: No such file or directory\")\n"
    )
    sdist(found_in, "extension", statements)
    why = await refusal(tmp_path, "extension", may_build=True)
    assert why.startswith("extension could not be built: gcc, which it is compiled with, failed or is missing | "), why


@for_each(
    ("variables", "settings", "places"),
    [
        ({}, {}, {("pypi.org", 443), ("files.pythonhosted.org", 443)}),
        ({"PIP_INDEX_URL": "https://a.test/x"}, {"index-url": "https://a.test/x"}, {("a.test", 443)}),
        (
            {"PIP_INDEX_URL": "http://me:pw@A.test:8080/x"},
            {"index-url": "http://me:pw@A.test:8080/x"},
            {("a.test", 8080)},
        ),
        (
            {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/srv https://b.test/l"},
            {"no-index": "1", "find-links": "/srv https://b.test/l"},
            {("b.test", 443)},
        ),
        (
            {"PIP_TARGET": "/", "PIP_NO_BINARY": ":all:", "PIP_PROXY": "p:1"},
            {},
            {("pypi.org", 443), ("files.pythonhosted.org", 443)},
        ),
    ],
)
def test_pip_is_used_as_this_machine_is_set_up(
    variables: dict[str, str], settings: dict[str, str], places: set[tuple[str, int]]
) -> None:
    found = package_index.configured(variables | {"PIP_CONFIG_FILE": os.devnull})
    assert (dict(found.settings), set(found.places)) == (settings, places)


def test_what_pip_is_told_relative_to_a_folder_is_absolute(tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text("[global]\nextra-index-url = file:other%20one\n  https://a.test/simple\n")
    variables = {
        "HOME": "/home/ada",
        "PIP_CONFIG_FILE": "pip.conf",
        "PIP_CERT": "my certs/ca.pem",
        "PIP_CLIENT_CERT": "~/me.pem",
        "PIP_CONSTRAINT": "a.txt ../b.txt https://b.test/c.txt",
        "PIP_FIND_LINKS": "wheels /srv ~/wheels https://c.test/l",
        "SSL_CERT_FILE": "all.pem",
        "SSL_CERT_DIR": f"certs{os.pathsep}/etc/certs",
    }
    found = package_index.configured(variables, folder=str(tmp_path))
    assert dict(found.settings) == {
        "extra-index-url": f"file://{tmp_path}/other%20one https://a.test/simple",
        "cert": f"{tmp_path}/my certs/ca.pem",
        "client-cert": "/home/ada/me.pem",
        "constraint": f"{tmp_path}/a.txt {tmp_path.parent}/b.txt https://b.test/c.txt",
        "find-links": f"{tmp_path}/wheels /srv /home/ada/wheels https://c.test/l",
    }
    assert dict(found.certificates) == {
        "SSL_CERT_FILE": f"{tmp_path}/all.pem",
        "SSL_CERT_DIR": f"{tmp_path}/certs{os.pathsep}/etc/certs",
    }
    assert {f"{tmp_path}/other one", f"{tmp_path}/my certs/ca.pem", f"{tmp_path}/a.txt"} <= set(found.paths)
    assert {f"{tmp_path}/wheels", "/home/ada/wheels", "/etc/certs"} <= set(found.paths)
    assert {host for host, _ in found.places} >= {"a.test", "b.test", "c.test"}


async def test_an_installation_finds_what_is_named_relative_to_the_working_directory(
    found_in: Path, tmp_path: Path, bare: Patch
) -> None:
    bare.chdir(tmp_path)
    bare.setenv("PIP_FIND_LINKS", "wheels")
    bare.setenv("PIP_CONSTRAINT", "constraints.txt")
    (tmp_path / "constraints.txt").write_text("spindle<2\n")
    for version in ("1.0", "2.0"):
        wheel(found_in, "spindle", version)
    python = await installed(tmp_path, "spindle")
    assert [each.name for each in python.parents[1].rglob("spindle-*.dist-info")] == ["spindle-1.0.dist-info"]


def test_pips_files_are_read_and_variables_count_more(tmp_path: Path) -> None:
    file = tmp_path / "pip.conf"
    file.write_text(
        "[global]\nindex-url = https://file.test/simple\ntrusted_host = a.test\n  b.test\ncert = /srv/ca.pem\n"
        "[install]\ntimeout = 7\n[list]\nformat = json\n"
    )
    variables = {"PIP_CONFIG_FILE": str(file), "PIP_INDEX_URL": "https://variable.test/simple", "HOME": str(tmp_path)}
    variables |= {"SSL_CERT_FILE": "/srv/all.pem", "https_proxy": "http://proxy.test:3128", "no_proxy": "variable.test"}
    found = package_index.configured(variables)
    assert found.settings["index-url"] == "https://variable.test/simple"
    assert found.environment["PIP_TRUSTED_HOST"] == "a.test b.test"
    assert (found.environment["PIP_TIMEOUT"], found.environment["PIP_CONFIG_FILE"]) == ("7", os.devnull)
    assert {"/srv/ca.pem", "/srv/all.pem"} <= set(found.paths)
    assert found.proxy_for("https", "variable.test", 443) == ""
    assert found.proxy_for("https", "other.test", 443) == "http://proxy.test:3128"


@pytest.mark.parametrize("way", ["tunnel", "plain"])
async def test_the_proxy_goes_over_the_machines_own_proxy(tmp_path: Path, way: str) -> None:
    """Which is, here, another one of the same kind."""
    (tmp_path / "simple").mkdir()
    (tmp_path / "simple" / "index.html").write_text("an index")
    with served(tmp_path) as url:
        place = ("127.0.0.1", int(url.split(":")[2].split("/")[0]))
        variables = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": url}
        async with serving_proxy(package_index.configured(variables)) as above:
            variables |= {"PIP_PROXY": f"http://me:pw@127.0.0.1:{above.port}"}
            async with serving_proxy(package_index.configured(variables)) as proxy:
                reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
                if way == "tunnel":
                    writer.write(f"CONNECT {place[0]}:{place[1]} HTTP/1.1\r\n\r\n".encode())
                    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
                    writer.write(b"GET /simple/ HTTP/1.0\r\n\r\n")
                else:
                    writer.write(f"GET {url} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: secret\r\n\r\n".encode())
                assert (await reader.read()).endswith(b"an index")
                writer.close()


async def test_the_proxy_ends_with_what_its_clients_left_open(bare: Patch, listener: int) -> None:
    bare.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{listener}/")
    before = asyncio.all_tasks()
    async with serving_proxy(package_index.configured()) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(f"CONNECT 127.0.0.1:{listener} HTTP/1.1\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
    assert asyncio.all_tasks() == before
    writer.close()


@for_each(
    "request_line",
    [
        "CONNECT localhost:1 HTTP/1.1",
        "CONNECT 169.254.169.254:80 HTTP/1.1",
        "GET http://127.0.0.1:1/ HTTP/1.1",
        "GET file:///etc/shadow HTTP/1.1",
        "GET / HTTP/1.1",
    ],
)
async def test_the_proxy_leads_nowhere_else(request_line: str) -> None:
    async with serving_proxy(package_index.configured({"PIP_CONFIG_FILE": os.devnull})) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(f"{request_line}\r\n\r\n".encode())
        assert (await reader.read()).startswith(b"HTTP/1.1 403 ")
        writer.close()
