"""Checks code before it is kept: in a process of its own, in the sandbox, for a limited time.

Whatever the code does there (raise, hang, fork, print, leave), the answer is its spiders or one sentence and a
traceback, and none of its processes is left.

More of a project's own settings is masked than in logs: people write passwords and keys into a settings module under
names of their own, and nobody is harmed where a harmless value is masked as well.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import Collection, Mapping
from contextlib import AbstractAsyncContextManager, closing, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from weft.errors import Invalid, Rejected
from weft.projects.deploy_progress import clear_step
from weft.projects.model import SourceWarning, Spider
from weft.projects.process_tags import kill_tagged, new_tag
from weft.redaction import MASK, is_secret, redacted
from weft.untrusted_files import remove
from weft.user_code import (
    GRACE,
    KINDS,
    LEAST,
    Launch,
    bare_environment,
    environment_paths,
    grace_of,
    is_passed,
    passed_on,
    reached_by,
    stricter,
)

if TYPE_CHECKING:
    from weft.projects.layout import CodeLayout

SECRET_WORDS = re.compile(
    r"(?:^|[_\-\s])(?:secrets?|pass(?:words?|wd|phrase)?|pwd|tokens?|auth|authorization|credentials?|cookies?|signature"
    r"|(?:access|account|api|auth|encryption|license|private|secret|shared|signing)[_\-]?keys?)(?:$|[_\-\s])",
    re.IGNORECASE,
)


def masked_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _masked_by_name(name, value) for name, value in settings.items()}


def _masked_by_name(name: str, value: Any) -> Any:
    if isinstance(value, bool) or value in (None, "", [], {}):
        return value
    return MASK if is_secret(name) or SECRET_WORDS.search(name) else _masked_value(value)


def _masked_value(value: Any) -> Any:
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, Mapping):
        return masked_settings(value)
    return [_masked_value(each) for each in value] if isinstance(value, list) else value


AGENT = Path(__file__).parents[1] / "agent" / "__main__.py"
CHECK_SECONDS = 60.0
MOST_OUTPUT, MOST_COMPLAINTS = 4_000_000, 64_000
MOST_SPIDERS, MOST_WARNINGS = 5_000, 200
LONGEST_TRACEBACK = 16_000
SAME_NAME = "several spiders with the same name"
"""What Scrapy says of them."""
INHERITED = re.compile(r"PATH|LANG|LC_\w+|TZ|LD_LIBRARY_PATH")
MISSING_SETTING = re.compile(r"KeyError: '([A-Za-z_][A-Za-z0-9_]*)'")
"""What Python says of a variable that the environment has not."""
SPIDER_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,200}")


class Interpreters(Protocol):
    """Lends the interpreter that has what a file of requirements names, whose digest is ``lock``."""

    def __call__(
        self, requirements: Path, lock: str, *, may_build: bool, min_isolation: str
    ) -> AbstractAsyncContextManager[Path]: ...


class _Answer(msgspec.Struct, frozen=True):
    """What the agent says."""

    spiders: list[Spider] | None = None
    settings: dict[str, Any] = {}
    warnings: list[SourceWarning] = []
    error: str = ""


class CheckedCode(NamedTuple):
    """What is known of code that works."""

    spiders: tuple[Spider, ...]
    settings: Mapping[str, Any]
    """What its settings module says, secrets masked."""
    warnings: tuple[SourceWarning, ...] = ()
    grace_seconds: float | None = None
    """How long its runs may take to close, where its settings module says so."""


class CodeChecker:
    """Checks code. ``at_once`` checks run side by side; others wait."""

    def __init__(
        self,
        interpreters: Interpreters | None = None,
        variables: Mapping[str, str] = os.environ,
        *,
        seconds: float = CHECK_SECONDS,
        at_once: int = 2,
        agent: Path = AGENT,
    ) -> None:
        """``variables`` are those of the process whose runs the code is for."""
        self._interpreters, self._seconds, self._agent = interpreters, seconds, agent
        self._variables = variables
        self._turns = asyncio.Semaphore(at_once)

    async def check(
        self,
        folder: Path,
        layout: CodeLayout,
        *,
        may_build: bool = False,
        min_isolation: str = "",
        spider_env: Collection[str] = (),
        ports: Collection[int] | None = None,
    ) -> CheckedCode:
        """The spiders and settings of the code in ``folder``; ``Rejected`` tells why there are none. ``spider_env``
        names the further variables that its runs will see, ``ports`` the only ones that it may connect to, where given.
        Nothing of it is executed with less than ``min_isolation``.
        """
        if min_isolation:
            await require_sandbox(min_isolation)
        async with self._python(folder, layout, may_build, min_isolation) as python, self._turns:
            clear_step("importing")
            env = passed_on(spider_env, self._variables)
            answer = await self._asked(python, folder / layout.root, layout.settings, env, min_isolation, ports)
            spiders, grace_seconds = _spiders(answer, spider_env), _grace(answer)
            return CheckedCode(spiders, masked_settings(answer.settings), _warnings(answer, layout.root), grace_seconds)

    def _python(
        self, folder: Path, layout: CodeLayout, may_build: bool, min_isolation: str
    ) -> AbstractAsyncContextManager[Path]:
        if layout.requirements and self._interpreters is not None:
            needs = folder / layout.requirements
            return self._interpreters(needs, layout.lock, may_build=may_build, min_isolation=min_isolation)
        return nullcontext(Path(sys.executable))

    async def _asked(
        self,
        python: Path,
        root: Path,
        settings: str,
        env: Mapping[str, str],
        min_isolation: str,
        ports: Collection[int] | None,
    ) -> _Answer:
        place = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="weft-check-"))
        home, mark = place / "home", new_tag()
        home.mkdir()
        try:
            # Files, not pipes: whoever was forked could keep a pipe open and have us wait for its end.
            with (
                (place / "said").open("xb") as said,
                (place / "complained").open("xb") as complained,
                closing(self._launch(python, root, settings, home, mark, env, min_isolation, ports)) as launch,
            ):
                process = await asyncio.create_subprocess_exec(
                    *launch.argv,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=said,
                    stderr=complained,
                    cwd=home,
                    env=bare_environment(),
                    start_new_session=True,
                    pass_fds=(launch.descriptor,),
                )
            try:
                return await self._answer(process, place, _path_names(python, root))
            finally:
                await asyncio.shield(kill_tagged(process, mark))
        finally:
            await asyncio.to_thread(remove, place)

    def _launch(
        self,
        python: Path,
        root: Path,
        settings: str,
        home: Path,
        mark: int,
        env: Mapping[str, str],
        min_isolation: str,
        ports: Collection[int] | None,
    ) -> Launch:
        """It may read the code, and write only into the folder of the check."""
        code = os.path.abspath(root)
        return Launch(
            [str(python), "-I", str(self._agent), "inspect", code, settings],
            {**env, **_environment(home, self._variables)},
            isolation=stricter(min_isolation, LEAST),
            must=bool(min_isolation),
            read=[code, *environment_paths(python)],
            write=[str(home)],
            limits={**KINDS["check"].limits, "mark": mark},
            ports=ports,
            tell=False,
            low=True,
        )

    async def _answer(self, process: Process, place: Path, places: Mapping[str, str]) -> _Answer:
        code: int | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                code = await process.wait()
        said = _beginning(place / "said", MOST_OUTPUT)
        complaints = (
            _beginning(place / "complained", MOST_COMPLAINTS)[-LONGEST_TRACEBACK:].decode(errors="replace").strip()
        )
        complaints = _without_paths(places, complaints)
        if code is None:
            raise Rejected(f"its code has not been imported after {self._seconds:g} s", complaints)
        if len(said) >= MOST_OUTPUT:
            raise Rejected(f"its code prints more than {MOST_OUTPUT} bytes when it is imported", complaints)
        answer = _answer_in(said, code, complaints)
        return msgspec.structs.replace(answer, error=_without_paths(places, answer.error))


def _path_names(python: Path, root: Path) -> dict[str, str]:
    """Where code lies on this machine, and what whoever deploys it is told instead."""
    libraries = {f"{prefix}/lib/": "lib/" for prefix in (python.absolute().parents[1], sys.prefix, sys.base_prefix)}
    return {f"{os.path.abspath(root)}/": "", f"{AGENT.parents[2]}/": "", **libraries}


def _without_paths(places: Mapping[str, str], text: str) -> str:
    for place, shown in places.items():
        text = text.replace(place, shown)
    return text


async def require_sandbox(min_isolation: str) -> None:
    """Raise ``Rejected`` where code of a project that demands so much would be installed and looked at with less."""
    reached = await reached_by("check", isolation=min_isolation)
    if reached.level < min_isolation:
        why = reached.failure or "; ".join(reached.missing)
        raise Rejected(f"its code must be looked at with isolation {min_isolation}, which is not reached here: {why}")


def _answer_in(said: bytes, code: int, complaints: str) -> _Answer:
    """The last line that is an answer; other lines were printed by the code."""
    for line in reversed(said.splitlines()):
        if line.startswith(b"{"):
            try:
                answer = msgspec.json.decode(line, type=_Answer)
            except (msgspec.DecodeError, RecursionError):
                continue
            if answer.spiders is not None or answer.error:
                return answer
    how = f"by signal {-code}" if code < 0 else f"with code {code}"
    raise Rejected(f"its code ended the process that imported it, {how}", complaints)


def _spiders(answer: _Answer, spider_env: Collection[str]) -> tuple[Spider, ...]:
    if answer.error:
        text = answer.error[-LONGEST_TRACEBACK:]
        if SAME_NAME in text:
            raise Rejected("two of its spiders have the same name; each needs a name of its own", text)
        last = _last_line(text)
        if (lacks := MISSING_SETTING.fullmatch(last)) and any(
            w.code == "environment" and w.name == lacks[1] for w in answer.warnings
        ):
            why = "spider_env names what reaches it"
            if is_passed(lacks[1], spider_env):
                why = "spider_env names it, but it is not set where the code is checked: set it where weft is started"
            raise Rejected(f"its code needs {lacks[1]} in its environment; {why}", text)
        raise Rejected(f"its code cannot be imported ({last})", text)
    found = answer.spiders or []
    names = [each.name for each in found]
    for name in names:
        if not SPIDER_NAME.fullmatch(name):
            raise Rejected(f"the name of a spider is {name[:100]!r}; it must be 1 to 200 characters that print")
    if not names:
        raise Rejected("it has no spiders; SPIDER_MODULES of its settings must name where they are")
    if len(names) > MOST_SPIDERS:
        raise Rejected(f"it has {len(names)} spiders; {MOST_SPIDERS} are allowed")
    return tuple(sorted(found, key=lambda each: each.name))


def _grace(answer: _Answer) -> float | None:
    try:
        return grace_of(answer.settings.get(GRACE))
    except Invalid as problem:
        raise Rejected(str(problem)) from problem


def _warnings(answer: _Answer, root: str) -> tuple[SourceWarning, ...]:
    """What was found in its source, by files of the archive. It is code that says so: what would steer a terminal is
    left out."""
    found = [each for each in answer.warnings[:MOST_WARNINGS] if SPIDER_NAME.fullmatch(each.file + each.name)]
    inside = f"{root}/" if root else ""
    return tuple(msgspec.structs.replace(each, file=inside + each.file) for each in found)


def _environment(home: Path, variables: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in variables.items() if INHERITED.fullmatch(name)}
    own = {"HOME": str(home), "TMPDIR": str(home), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    return kept | own


def _beginning(file: Path, most: int) -> bytes:
    with file.open("rb") as opened:
        return opened.read(most)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it does not say why"
