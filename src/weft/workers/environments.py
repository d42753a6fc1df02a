"""Python environments with what projects need: one for each lock file, made when first needed and kept.

Versions whose requirements are the same file share one. Nobody moves an environment, since its scripts know where they
are: it is made in its place. pip is weft's, with the configuration of the machine, and works in the sandbox: it reaches
the package index and nothing else. It takes wheels alone, of which nothing is executed, unless the project may build.
A requirements file names packages, and says nothing about where they come from.
"""

from __future__ import annotations

import asyncio
import codecs
import hashlib
import logging
import os
import platform
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from weft.errors import CodeNotReady, Rejected
from weft.projects.deploy_progress import set_step
from weft.projects.process_tags import kill_tagged, new_tag
from weft.untrusted_files import remove
from weft.user_code import HERE, KINDS, LEAST, Launch, Surroundings, bare_environment, stricter, why_not
from weft.workers import package_index
from weft.workers.folder_cache import FolderCache, in_thread
from weft.workers.package_index import IndexProxy, PackageIndex, serving_proxy

LARGEST_REQUIREMENTS = 1_000_000
HASHES = re.compile(r"\s--hash[=\s]")
HASH = re.compile(r"[a-z0-9]+:[0-9A-Fa-f]+")
PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._*+!<>=~,\[\]-]*")
"""A name with extras and versions, as pip is given them: one word."""
MARKER = re.compile(r"[A-Za-z0-9 ._,*+!<>=~()/:'\"-]*")
"""Without what pip takes for a comment, a variable or a further line, even between quotes."""
COMMENT = re.compile(r"(?:^|(?<=\s))#.*$")
OPTION = re.compile(r"(?:^|(?<=\s))--?[A-Za-z][A-Za-z-]*")
ADDRESS = re.compile(r"://|^(?:git|hg|svn|bzr)\+|\s@\s|^\S+@\s")
ARCHIVE = re.compile(r"\.(?:whl|zip|tar|tgz|gz|tbz|bz2|txz|xz)$", re.IGNORECASE)
PATH = re.compile(rf"^[./~]|^file:|[/\\]|{ARCHIVE.pattern}", re.IGNORECASE)
BY_NAME = "a project names packages, and the machine's pip knows where they are"


def read_requirements(file: Path) -> list[str]:
    """The requirements of a file, each as pip is given it. ``CodeNotReady`` names the line that may not be there."""
    if file.stat().st_size > LARGEST_REQUIREMENTS:
        raise CodeNotReady(f"its {file.name} is larger than {LARGEST_REQUIREMENTS} bytes")
    found = []
    for number, line in _requirement_lines(_requirements_text(file)):
        try:
            found.append(parsed(line))
        except (ValueError, RecursionError) as problem:
            raise CodeNotReady(f"{file.name}, line {number}: {_requirement_problem(line)}") from problem
    return found


def parsed(line: str) -> str:
    """A requirement put together from its parts, so that nothing else of the line reaches pip; else ``ValueError``."""
    from packaging.requirements import Requirement  # with the first installation

    written, *hashes = HASHES.split(line)
    requirement = Requirement(written)
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    package = f"{requirement.name}{extras}{requirement.specifier}"
    marker = str(requirement.marker or "")
    if requirement.url or any(map(ARCHIVE.search, (requirement.name, package))) or not PACKAGE.fullmatch(package):
        raise ValueError(line)
    # Pip looks for options before it looks at quotes.
    if " -" in marker or not MARKER.fullmatch(marker) or not all(map(HASH.fullmatch, hashes)):
        raise ValueError(line)
    return package + (f" ; {marker}" if marker else "") + "".join(f" --hash={each}" for each in hashes)


def _requirements_text(file: Path) -> str:
    """UTF-8; or UTF-16 that says so in its first bytes, as PowerShell writes it."""
    data = file.read_bytes()
    encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as problem:
        number = data.count(b"\n", 0, problem.start) + 1
        what = "UTF-16, as its first bytes say" if encoding == "utf-16" else "UTF-8"
        raise CodeNotReady(f"{file.name}, line {number}: it is no text in {what}") from problem


def are_pinned(requirements: list[str]) -> bool:
    """Whether hashes say which files may be installed; then pip takes no other."""
    return any("--hash" in each for each in requirements)


def _requirement_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that say something, without comments, put together where a backslash ends them, each with its number."""
    began, said = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        line = COMMENT.sub("", line).rstrip()
        began = began or number
        said += line.removesuffix("\\")
        if line.endswith("\\"):
            continue
        if said.strip():
            yield began, " ".join(said.split())
        began, said = 0, ""
    if said.strip():
        yield began, " ".join(said.split())


def _requirement_problem(line: str) -> str:
    """Without what follows an option or a name: it may be a password."""
    if option := OPTION.search(HASHES.sub(" ", line)):
        return f"the option {option[0]} is not allowed; {BY_NAME}"
    if ADDRESS.search(line):
        return f"a URL is not allowed; {BY_NAME}"
    if PATH.search(line.partition(";")[0]):
        return f"a file or a folder is not allowed; {BY_NAME}"
    return f"{line[:80]!r} is no requirement, such as lxml>=5"


log = logging.getLogger(__name__)

MOST, MOST_BYTES = 20, 20 << 30
INSTALL_SECONDS = 600.0
NEEDED = "scrapy>=2.11"
"""What weft's agent needs inside every environment."""
KEPT_OUTPUT, SHOWN_LINES, LONGEST_LINE = 64 * 1024, 8, 1000
PIP_SETTINGS = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PIP_PROGRESS_BAR": "off",
    "PIP_ROOT_USER_ACTION": "ignore",
    "PYTHONUNBUFFERED": "1",
}


class Environments:
    """The environments below one folder, for all processes of this machine."""

    def __init__(
        self,
        folder: Path,
        *,
        most: int = MOST,
        most_bytes: int = MOST_BYTES,
        install_seconds: float = INSTALL_SECONDS,
        package_hosts: Collection[str] = (),
        surroundings: Surroundings = HERE,
    ) -> None:
        """pip is configured by the variables of ``surroundings``, and by files."""
        folder = folder.absolute()
        self._folders = FolderCache(folder, most=most, most_bytes=most_bytes)
        self._cache = folder.with_name("package-cache")
        self._seconds, self._hosts, self._surroundings = install_seconds, tuple(package_hosts), surroundings

    async def python_for(
        self, requirements: Path | None, lock: str, *, may_build: bool = False, min_isolation: str = ""
    ) -> Path:
        """The interpreter that has what ``requirements`` names; weft's own where there is none.

        ``lock`` is the SHA-256 of that file. The environment stays until ``done`` was called as often. One that
        was made where packages may be built is none for others: code of packages may have left something in it.
        Where there is none yet, it is not made with less than ``min_isolation``.
        """
        if requirements is None:
            return Path(sys.executable)
        await in_thread(_check_lock, requirements, lock)

        async def make(folder: Path) -> None:
            await self._install(folder, requirements, may_build=may_build, min_isolation=min_isolation)

        return python_in(await self._folders.take(name_of(lock, may_build=may_build), make))

    def done(self, lock: str, *, may_build: bool = False) -> None:
        """Say that one use of the environment of ``lock`` is over; empty: weft's own, which always stays."""
        if lock:
            self._folders.give_back(name_of(lock, may_build=may_build))

    @asynccontextmanager
    async def tried(
        self, requirements: Path, lock: str, *, may_build: bool = False, min_isolation: str = ""
    ) -> AsyncIterator[Path]:
        """The interpreter for a look at code that is to be deployed, which is rejected where it cannot be had."""
        try:
            python = await self.python_for(requirements, lock, may_build=may_build, min_isolation=min_isolation)
        except CodeNotReady as problem:
            raise Rejected("its requirements cannot be installed", problem.why) from problem
        try:
            yield python
        finally:
            self.done(lock, may_build=may_build)

    async def _install(self, folder: Path, requirements: Path, *, may_build: bool, min_isolation: str) -> None:
        wanted = await in_thread(read_requirements, requirements)
        if lacks := await in_thread(why_not, min_isolation):
            raise CodeNotReady(f"its packages are not installed: {lacks}")
        place = Path(await in_thread(partial(tempfile.mkdtemp, prefix="weft-install-")))
        try:
            async with asyncio.timeout(self._seconds):
                set_step("environment")
                pip = await _make_venv(folder)
                index = package_index.configured(
                    self._surroundings.variables, more_hosts=self._hosts, folder=self._surroundings.folder
                )
                cache = None if may_build else self._cache
                installation = _Installation(folder, place, cache, index, min_isolation)
                await installation.install(pip, wanted)
                set_step("installed")
                await installation.check()
        except TimeoutError:
            raise CodeNotReady(f"its requirements were not installed within {self._seconds:g} s") from None
        finally:
            await in_thread(remove, place)
        await in_thread(os.sync)


class _Installation:
    """One run of pip: ``place`` is a folder that is removed afterwards; without a ``cache``, packages may be built."""

    def __init__(self, folder: Path, place: Path, cache: Path | None, index: PackageIndex, min_isolation: str) -> None:
        self._folder, self._place, self._cache, self._index = folder, place, cache, index
        self._min_isolation = min_isolation

    async def install(self, pip: Sequence[str], wanted: Sequence[str]) -> None:
        listed = self._place / "requirements.txt"
        # Where hashes pin every package pip takes no other, so the file must name Scrapy itself.
        needed = [] if are_pinned(list(wanted)) else [NEEDED]
        await in_thread(listed.write_text, "\n".join([*wanted, *needed, ""]))
        only = [] if self._cache is None else ["--only-binary", ":all:"]
        async with serving_proxy(self._index) as proxy:
            own = {
                **self._index.environment,
                **PIP_SETTINGS,
                "PIP_PROXY": f"http://127.0.0.1:{proxy.port}",
                **({"PIP_NO_CACHE_DIR": "1"} if self._cache is None else {"PIP_CACHE_DIR": str(self._cache)}),
            }
            argv = [*pip, "install", *only, "--requirement", str(listed)]
            output, code = await self._run(argv, own, ports=[proxy.port], told=PipProgress().take)
            if code:
                raise CodeNotReady(_why(output, proxy, may_build=self._cache is None))

    async def check(self) -> None:
        """Look at what is there now, by a Python that starts with it."""
        output, code = await self._run([str(python_in(self._folder)), "-I", "-c", CHECK], {}, ports=[])
        if code:
            raise CodeNotReady(_last_lines(output) or f"its Python ended with {code} and said nothing")

    async def _run(
        self,
        argv: Sequence[str],
        env: dict[str, str],
        ports: Collection[int],
        told: Callable[[bytes], None] | None = None,
    ) -> tuple[bytes, int]:
        """Run a command in the sandbox to its end; the end of what it printed. Nothing of it is left behind. What it
        prints is ``told`` meanwhile."""
        mark, home = new_tag(), str(self._place)
        cache = [] if self._cache is None or not ports else [str(self._cache)]
        for path in cache:
            await in_thread(partial(os.makedirs, path, mode=0o700, exist_ok=True))
        launch = Launch(
            argv,
            {**bare_environment(), "HOME": home, "TMPDIR": home, **env},
            isolation=stricter(self._min_isolation, LEAST),
            must=bool(self._min_isolation),
            read=self._index.paths,
            write=[str(self._folder), home, *cache],
            limits={**KINDS["install"].limits, "mark": mark},
            ports=ports,
            tell=False,
            low=True,
        )
        with closing(launch):
            process = await asyncio.create_subprocess_exec(
                *launch.argv,
                cwd=home,
                env=bare_environment(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(launch.descriptor,),
            )
            try:
                output = await _end_of(process, told)
                code = await process.wait()
            finally:
                await asyncio.shield(kill_tagged(process, mark))
            reached = launch.reached()
        if reached.failure:
            raise CodeNotReady(f"its packages are not installed: {reached.failure}")
        if reached.missing:
            log.info("installed with less isolation", extra={"missing": "; ".join(reached.missing)})
        return output, code


CHECK = f"""
from importlib.metadata import PackageNotFoundError, version
try:
    found = version("scrapy")
except PackageNotFoundError:
    raise SystemExit("its requirements do not name scrapy; where hashes pin them, {NEEDED} must be among them")
if [int(part) for part in found.split(".")[:2]] < [2, 11]:
    raise SystemExit(f"its requirements name scrapy {{found}}; weft needs {NEEDED}")
"""


def name_of(lock: str, *, may_build: bool = False) -> str:
    """Another Python, machine or need of the agent is another environment."""
    parts = (lock, platform.python_version(), platform.machine(), NEEDED, *(["built"] if may_build else []))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def python_in(folder: Path) -> Path:
    return folder / "bin" / "python"


def _check_lock(requirements: Path, lock: str) -> None:
    try:
        found = hashlib.sha256(requirements.read_bytes()).hexdigest()
    except OSError as problem:
        raise CodeNotReady(f"its requirements {requirements.name} cannot be read: {problem.strerror}") from problem
    if found != lock:
        raise CodeNotReady(f"its requirements {requirements.name} are not those of its lock")


async def _make_venv(folder: Path) -> list[str]:
    """Make an empty environment, and say how pip is called for it: weft's own needs no copy inside."""
    python = str(python_in(folder))
    if find_spec("pip") is not None:
        await _make([sys.executable, "-I", "-m", "venv", "--without-pip", str(folder)])
        return [sys.executable, "-I", "-m", "pip", "--python", python]
    maker = "venv" if find_spec("ensurepip") is not None else "virtualenv"
    await _make([sys.executable, "-I", "-m", maker, str(folder)])
    return [python, "-I", "-m", "pip"]


async def _make(command: Sequence[str]) -> None:
    """Run a command of weft's own Python to its end; its last lines are the reason where it fails."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd="/",
        env=bare_environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output = await _end_of(process)
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if code:
        raise CodeNotReady(_last_lines(output) or f"its environment could not be made: exit code {code}")


class PipProgress:
    """Tells what pip is busy with, by the lines that it prints."""

    def __init__(self) -> None:
        self._line, self._packages = b"", 0

    def take(self, output: bytes) -> None:
        *lines, rest = (self._line + output).split(b"\n")
        self._line = rest[-LONGEST_LINE:]
        for line in lines:
            self._read(line[:LONGEST_LINE].decode(errors="replace").strip())

    def _read(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        what, _, more = rest.partition(" ")
        what = what.rpartition("/")[2]
        if word in ("Collecting", "Processing"):
            self._packages += 1
            set_step("collecting", package=what, number=self._packages)
        elif word == "Downloading":
            set_step("downloading", file=what, size=more)
        elif line.startswith("Building wheel for "):
            set_step("building", package=line.split()[3])
        elif line.startswith("Installing collected packages: "):
            set_step("packages", count=line.count(",") + 1)


async def _end_of(process: asyncio.subprocess.Process, told: Callable[[bytes], None] | None = None) -> bytes:
    """The end of what a process prints, however much that is."""
    kept = b""
    assert process.stdout is not None
    while piece := await process.stdout.read(KEPT_OUTPUT):
        kept = (kept + piece)[-KEPT_OUTPUT:]
        if told is not None:
            told(piece)
    return kept


NOT_FOUND = re.compile(r"No matching distribution found for (\S.*)")
VERSIONS = re.compile(r"\(from versions: ([^)]*)\)")
UNTRUSTED = re.compile(r"host='([^']+)', port=(\d+)\)[^\n]*CERTIFICATE_VERIFY_FAILED")
CONFLICT = re.compile(r"Cannot install (.+?) because these package versions have conflicting dependencies")
CAUSES = re.compile(r"^The conflict is caused by:\n((?: +\S.*\n)+)", re.MULTILINE)
MOST_CAUSES, MOST_VERSIONS = 4, 10
OTHER_HASH = re.compile(r"^\s*(\S+) from .*:\n\s*Expected (sha\d+) ([0-9a-f]+)\n\s*Got\s+([0-9a-f]+)", re.MULTILINE)
NOT_PINNED = "must have their versions pinned|were not pinned|does not have a hash|Hashes are required"
NOT_BUILT = re.compile(r"(?:Failed building wheel for|Failed to build|Could not build wheels for) (\S[^,\n]*)")
BEGUN = re.compile(r"(?:Building wheel for |Collecting |Processing \S*/)([A-Za-z0-9._]+)")
COMPILER = re.compile(r"(?:error: command '?([\w./+-]+)'? failed|unable to execute '?([\w./+-]+)'?)", re.IGNORECASE)


def _why(output: bytes, proxy: IndexProxy, *, may_build: bool) -> str:
    """One sentence for a person, where it is known what went wrong, and pip's own words."""
    text = output.decode(errors="replace")
    if proxy.refused:
        hosts = ", ".join(proxy.refused)
        told = f"{hosts} is no host of the package index; the setting package_hosts allows further ones"
    elif proxy.unreached:
        told = "the package index cannot be reached: " + "; ".join(
            f"{host} ({why})" for host, why in proxy.unreached.items()
        )
    elif found := UNTRUSTED.search(text):
        told = (
            f"the certificate of the package index {found[1]}:{found[2]} is not trusted; PIP_CERT names a file with "
            "the certificates that this machine trusts"
        )
    elif found := CONFLICT.search(text):
        causes = CAUSES.search(text)
        lines = [line.strip() for line in causes[1].splitlines()][:MOST_CAUSES] if causes else []
        told = f"its requirements contradict each other: {found[1]}" + (f" ({', '.join(lines)})" if lines else "")
    elif found := OTHER_HASH.search(text):
        told = f"the file of {found[1]} has the {found[2]} {found[4][:16]}…, and its requirements want {found[3][:16]}…"
    elif re.search(NOT_PINNED, text):
        told = "where one package is pinned by a hash, all must be, also those that they need"
    elif may_build and (NOT_BUILT.search(text) or "did not run successfully" in text):
        compiler = COMPILER.search(text)
        with_what = (
            f": {compiler[1] or compiler[2]}, which it is compiled with, failed or is missing" if compiler else ""
        )
        told = f"{_last_begun(text)} could not be built{with_what}"
    elif missing := NOT_FOUND.search(text):
        told = _not_found(missing[1].strip(), text, may_build=may_build)
    else:
        told = ""
    return " | ".join(filter(None, (told, _last_lines(output)))) or "pip failed and said nothing"


def _not_found(wanted: str, text: str, *, may_build: bool) -> str:
    listed = VERSIONS.search(text)
    if listed and listed[1] not in ("", "none"):
        versions = listed[1].split(", ")
        more = "… " if len(versions) > MOST_VERSIONS else ""
        return f"no version of {wanted} fits; there are {more}{', '.join(versions[-MOST_VERSIONS:])}"
    if may_build:
        return f"the package index has no package {wanted} for this Python and machine"
    return (
        f"there is no wheel of {wanted} for this Python and machine: its name may be wrong; what is there only as "
        "source is built where an admin allows it for the project (may_build)"
    )


def _last_begun(text: str) -> str:
    """The package that pip was busy with."""
    if named := NOT_BUILT.search(text):
        return named[1].strip()
    begun = BEGUN.findall(text)
    return begun[-1] if begun else "a package"


def _last_lines(output: bytes) -> str:
    """Pip's errors where it names some, else what was said last."""
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR: ") and line != "ERROR: Exception:"]
    return " | ".join((errors or lines)[-SHOWN_LINES:])
