"""Against: benchmarks of another commit and of this checkout in turn: ``bench against COMMIT [NAME…] [-- OPTIONS]``.

The other commit has a checkout and an environment of its own, kept in the user's cache, and runs its own benchmarks.
Only what both print is compared: the figures of their tables that have the same name.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fcntl import LOCK_EX, flock
from pathlib import Path

from bench.latencies import machine_load
from bench.measure import Figures, Goal, judge, table

ROOT = Path(__file__).parents[1]
NAMES = ("dispatch", "throughput")
AT_LEAST = 0.95
ROUNDS = 5
USAGE = 2
"""The exit code of a benchmark that does not know a name or an option; 1 is that of one that missed a goal."""
KEPT_VARIABLES = re.compile(r"(?!WEFT_|PYTHON|VIRTUAL_ENV)")

NUMBER = re.compile(r"([-+]?[\d,]+(?:\.\d+)?)(?: \(.*\))?")
DASHES = re.compile(r"-+(?:  -+)*")
TIMES = re.compile(r"(?<![\w/'])(?:ms|s|p50|p95|p99|seconds|CPU|MB|PSS|apart)\b")
"""In the name of a column whose figures are the better the lower they are, or of the whole table."""
RATES = re.compile(r"/s\b|a second")
"""In the name of a column whose figures are the better the higher they are, whatever the table is called."""
NOT_COMPARED = re.compile(r"×|later by|longest|worst|most")
"""Columns that compare within one table, and of single events that are another one each time."""
FOLLOWS = {"dispatch": "runs/s"}
"""Columns that say how much was asked, not how well it was done."""


class AgainstFailed(Exception):
    """The comparison could not be made; the text is one sentence."""


@dataclass(frozen=True, slots=True)
class Part:
    """One benchmark, with its options."""

    name: str
    options: tuple[str, ...] = ("--runs", "1")

    def __str__(self) -> str:
        return " ".join([self.name, *self.options])


SHORT = ("--runs", "1", "--seconds", "3", "--only")
PARTS = {
    "dispatch": [
        Part("dispatch", (*SHORT, "sqlite, local")),
        Part("dispatch", (*SHORT, "postgresql, postgresql")),
    ],
    "throughput": [Part("throughput", (*SHORT, "weft"))],
}
"""How benchmarks are measured where no options are given: once a round, and on the databases as weft sets them up."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two that are compared."""

    name: str
    folder: Path
    python: Path

    def measure(self, part: Part) -> str:
        """What its benchmark prints."""
        ended = subprocess.run(
            [self.python, "-m", "bench", part.name, *part.options],
            cwd=self.folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if ended.returncode >= USAGE or ended.returncode < 0 or not figures(ended.stdout):
            why = last_line(ended.stdout)
            raise AgainstFailed(f"`bench {part}` of {self.name} ended with {ended.returncode} and no table: {why}")
        return ended.stdout


@dataclass(frozen=True, slots=True)
class Figure:
    """One cell of a table that a benchmark has printed."""

    column: str
    value: float
    low_is_good: bool


@dataclass(slots=True)
class Compared:
    """One figure of both sides, from several rounds."""

    name: str
    low_is_good: bool
    old: Figures = field(default_factory=Figures)
    new: Figures = field(default_factory=Figures)

    @property
    def ratio(self) -> float:
        """How many times as good the new one is: new/old of a rate, old/new of a time."""
        old, new = self.old.median, self.new.median
        over, under = (old, new) if self.low_is_good else (new, old)
        return over / under if under else (1.0 if over == under else float("inf"))

    @property
    def is_lower(self) -> bool:
        return self.ratio < AT_LEAST

    @property
    def is_apart(self) -> bool:
        """Whether no value of one side lies among those of the other."""
        return max(self.old.values) < min(self.new.values) or max(self.new.values) < min(self.old.values)


Comparison = dict[str, Compared]


def main(arguments: Sequence[str]) -> int:
    options, more = parse(arguments)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {text}", flush=True)

    try:
        old = other(options.commit, say)
        new = Side(f"this checkout ({described(ROOT)})", ROOT, Path(sys.executable))
        code = compare_all(old, new, parts(options.names, more), options.rounds, say)
    except AgainstFailed as failed:
        print(f"bench: {failed}", file=sys.stderr)
        return USAGE
    say(machine_load())
    return code


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, tuple[str, ...]]:
    """The options of the comparison, and those of the benchmarks behind ``--``."""
    words = list(arguments)
    end = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(prog="bench against", description=__doc__)
    parser.add_argument("commit", metavar="COMMIT", help="the commit to compare this checkout with")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"the benchmarks ({' '.join(NAMES)})")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"how often each side is measured ({ROUNDS})")
    options = parser.parse_args(words[:end])
    if options.rounds < 1:
        parser.error(f"--rounds must be a whole number above 0 (got {options.rounds})")
    return options, tuple(words[end + 1 :])


def parts(names: Sequence[str], options: tuple[str, ...]) -> list[Part]:
    """What is measured. Options that are given take the place of the short ones here, all of them."""
    chosen = list(dict.fromkeys(names or NAMES))
    if options:
        once = () if "--runs" in options else ("--runs", "1")
        return [Part(name, (*once, *options)) for name in chosen]
    return [part for name in chosen for part in PARTS.get(name, [Part(name)])]


def compare_all(old: Side, new: Side, wanted: Sequence[Part], rounds: int, say: Callable[[str], None]) -> int:
    """Compare each part, once more where something is lower; the exit code says whether it was lower twice."""
    goals: list[Goal] = []
    for part in wanted:
        first = compare(old, new, part, rounds, say)
        print(f"\n{part}\n{report(first)}\n", flush=True)
        if lower := sum(each.is_lower for each in first.values()):
            say(f"{part}: {lower} of {len(first)} figures are below {AT_LEAST}; it is repeated once")
            second = compare(old, new, part, rounds, say)
            print(f"\n{part}, repeated\n{report(second)}\n", flush=True)
        else:
            second = first
        goals += [goal(part, first[name], second.get(name)) for name in first]
    return judge(goals)


def goal(part: Part, first: Compared, second: Compared | None) -> Goal:
    """A figure that was lower counts as it was the second time."""
    counted = second if second is not None and first.is_lower else first
    again = " (repeated)" if counted is not first else ""
    return Goal(what=f"{part.name}, {first.name}{again}", value=counted.ratio, at_least=AT_LEAST, unit="× as good")


def compare(old: Side, new: Side, part: Part, rounds: int, say: Callable[[str], None]) -> Comparison:
    """Both in turn, so that a slow minute of the machine falls on each; the one that was second is first next time."""
    seen: dict[str, list[Mapping[str, Figure]]] = {old.name: [], new.name: []}
    for number in range(rounds):
        for side in (old, new) if number % 2 == 0 else (new, old):
            began = time.monotonic()
            seen[side.name].append(figures(side.measure(part)))
            say(f"{part}: round {number + 1} of {rounds}: {side.name}: {time.monotonic() - began:.0f} s")
    for line in one_sided(old.name, seen[old.name], new.name, seen[new.name]):
        say(f"{part}: {line}")
    found = joined(part, seen[old.name], seen[new.name])
    if not found:
        raise AgainstFailed(f"{old.name} and {new.name} print no figure of the same name for `bench {part}`")
    return found


def figures(output: str) -> dict[str, Figure]:
    """The figures of all tables in what a benchmark has printed, by the words of their row and column."""
    lines, found = output.splitlines(), dict[str, Figure]()
    for place, line in enumerate(lines):
        if place and DASHES.fullmatch(line):
            columns = [match.span() for match in re.finditer("-+", line)]
            head = cells(lines[place - 1], columns)
            for row in lines[place + 1 :]:
                if not row.strip():
                    break
                found |= figures_of(head, cells(row, columns))
    return found


def cells(line: str, columns: Sequence[tuple[int, int]]) -> list[str]:
    return [line[start:end].strip() for start, end in columns]


def figures_of(head: Sequence[str], row: Sequence[str]) -> dict[str, Figure]:
    words = ", ".join(cell for cell in row if re.search(r"[^\W\d_]", cell) and not NUMBER.fullmatch(cell))
    found = {}
    for column, cell in zip(head, row, strict=True):
        if number := NUMBER.fullmatch(cell):
            low = not RATES.search(column) and bool(TIMES.search(column) or TIMES.search(head[0]))
            found[f"{words}: {column}"] = Figure(column, float(number[1].replace(",", "")), low)
    return found


def joined(part: Part, old: Sequence[Mapping[str, Figure]], new: Sequence[Mapping[str, Figure]]) -> Comparison:
    """The figures that both sides have printed each time, without those that tell nothing."""
    everywhere = [name for name in old[0] if all(name in each for each in (*old, *new))]
    found: Comparison = {}
    for name in everywhere:
        first = old[0][name]
        if NOT_COMPARED.search(first.column) or first.column == FOLLOWS.get(part.name):
            continue
        found[name] = Compared(
            name,
            first.low_is_good,
            Figures([each[name].value for each in old]),
            Figures([each[name].value for each in new]),
        )
    return found


def one_sided(
    old_name: str, old: Sequence[Mapping[str, Figure]], new_name: str, new: Sequence[Mapping[str, Figure]]
) -> list[str]:
    """A sentence for each side that prints what the other one never does."""
    printed = [dict.fromkeys(name for each in side for name in each) for side in (old, new)]
    sentences = []
    for name, own, others in ((old_name, *printed), (new_name, *reversed(printed))):
        if alone := [each for each in own if each not in others]:
            sentences.append(f"only {name} prints {'; '.join(alone)}")
    return sentences


def report(found: Comparison) -> str:
    head = ["figure", "old", "new", "× as good", ""]
    return table(
        head,
        [[each.name, shown(each.old), shown(each.new), f"{each.ratio:.3f}", remark(each)] for each in found.values()],
    )


def remark(each: Compared) -> str:
    if not each.is_lower:
        return ""
    return f"below {AT_LEAST}" + ("" if each.is_apart else ", but values overlap")


def shown(values: Figures) -> str:
    """The median, and the smallest and the largest value."""
    if len(values.values) < 2:
        return short(values.median)
    return f"{short(values.median)} ({short(min(values.values))}–{short(max(values.values))})"


def short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def other(commit: str, say: Callable[[str], None]) -> Side:
    """The other commit, checked out and with its environment, made once and kept."""
    sha = git(ROOT, "rev-parse", "--quiet", "--verify", f"{commit}^{{commit}}")
    if not sha:
        raise AgainstFailed(f'this repository has no commit "{commit}": fetch it, or name another one')
    folder = checkouts() / sha
    ready = folder.with_name(f"{sha}.ready")
    name = sha[:7]
    with locked(folder.with_name(f"{sha}.lock")):
        if not ready.exists():
            say(f"{name}: checking it out, once, into {folder}")
            check_out(sha, folder)
            say(f"{name}: making its environment, once; this takes a few minutes")
            run_or_fail([str(folder / "dev"), "setup"], folder, f"the environment of {name} could not be made")
            ready.touch()
    say(f"{name}: ready")
    return Side(name, folder, folder / ".venv" / "bin" / "python")


def checkouts() -> Path:
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "weft-dev" / "checkouts"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time makes a checkout."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        flock(file, LOCK_EX)
        yield


def check_out(sha: str, folder: Path) -> None:
    """A clone of its own, so that neither this checkout nor its list of worktrees knows of it."""
    if not (folder / ".git").exists():
        run_or_fail(["git", "clone", "--quiet", "--no-checkout", str(ROOT), str(folder)], ROOT, f"cannot clone {ROOT}")
    run_or_fail(["git", "checkout", "--quiet", "--detach", sha], folder, f"cannot check out {sha}")


def run_or_fail(command: Sequence[str], cwd: Path, what: str) -> None:
    ended = subprocess.run(
        command, cwd=cwd, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if ended.returncode:
        raise AgainstFailed(f"{what}: {last_line(ended.stdout)}")


def environment() -> dict[str, str]:
    """This process's, without what would lead another checkout back to this one."""
    return {name: value for name, value in os.environ.items() if KEPT_VARIABLES.match(name)}


def described(folder: Path) -> str:
    """The commit of a checkout, and whether files differ from it."""
    changed = " with changes" if git(folder, "status", "--porcelain", "--untracked-files=no") else ""
    return f"{git(folder, 'rev-parse', '--short=7', 'HEAD')}{changed}"


def git(folder: Path, *arguments: str) -> str:
    """What git says; nothing where it fails."""
    ended = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    return ended.stdout.strip() if ended.returncode == 0 else ""


def last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it printed nothing")
