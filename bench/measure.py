"""Medians, tables, and what a process takes: its memory and its processor time, both from /proc."""

import os
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True)
class Figures:
    """The same thing measured several times."""

    values: list[float] = field(default_factory=list)

    def add(self, value: float) -> None:
        self.values.append(value)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def __str__(self) -> str:
        """The median, and how far the runs lay apart."""
        if len(self.values) < 2:
            return f"{self.median:,.0f}"
        return f"{self.median:,.0f} ({min(self.values):,.0f}–{max(self.values):,.0f})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A figure and the least, or the most, that it may be."""

    what: str
    value: float
    at_least: float | None = None
    at_most: float | None = None
    unit: str = ""

    @property
    def met(self) -> bool:
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )

    def __str__(self) -> str:
        bounds = [("at least", self.at_least), ("at most", self.at_most)]
        asked = " and ".join(f"{word} {bound:,g}{self.unit}" for word, bound in bounds if bound is not None)
        value = f"{self.value:,.0f}" if self.value >= 1_000 else f"{self.value:.3g}"
        return f"{'met   ' if self.met else 'MISSED'} {self.what}: {value}{self.unit} ({asked})"


def judge(goals: Iterable[Goal]) -> int:
    """Print each goal and whether it is met; the exit code of a benchmark."""
    missed = 0
    for goal in goals:
        print(goal)
        missed += not goal.met
    return 1 if missed else 0


def table(head: Sequence[str], rows: Collection[Sequence[object]]) -> str:
    """Lines of text: the first column to the left, all others to the right."""
    cells = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in cells
    ]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def pss_megabytes(pid: int) -> float:
    """Proportional memory of one process: a page that n processes share counts as one n-th."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(f"process {pid} has no memory of its own; it has ended")


def cpu_seconds(pid: int) -> float:
    """Processor time that one process has used so far, in user and kernel mode, its ended children included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """A process and all that it started, at any remove."""
    children = [
        int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()
    ]
    return [pid, *(member for child in children for member in family(child))]
