"""What an experiment found: counts for each of its scenes, the problems, and one verdict."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What became of the runs of one scene. Beside loss and doubling, ``unknown`` is what could not be found out."""

    attempted: int = 0
    acknowledged: int = 0
    ok: int = 0
    """Acknowledged, there exactly once, and ended as it should."""
    lost: int = 0
    """Acknowledged, and gone or not ended as it should."""
    duplicated: int = 0
    """Made or ended more than once."""
    recovered: int = 0
    """Made by a submit whose answer never arrived. No error: nobody was told otherwise."""
    unknown: int = 0
    """Not ended when patience was."""
    kills: int = 0
    seconds: float = 0.0

    def __add__(self, other: Tally) -> Tally:
        mine, theirs = asdict(self), asdict(other)
        return Tally(**{name: mine[name] + theirs[name] for name in mine})

    def __str__(self) -> str:
        counts = {name: value for name, value in asdict(self).items() if name != "seconds"}
        return " ".join(f"{name} {value}" for name, value in counts.items()) + f" seconds {self.seconds:.1f}"


@dataclass(slots=True)
class Report:
    """The report of one experiment, filled scene by scene."""

    name: str
    scenes: dict[str, Tally] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add(self, scene: str, tally: Tally) -> None:
        """Count a scene, and say so, since the next may take long; what must be 0 is expected to be 0."""
        self.scenes[scene] = tally
        print(f"{self.name} {scene}: {tally}", file=sys.stderr, flush=True)
        for name in ("lost", "duplicated", "unknown"):
            count = getattr(tally, name)
            self.expect(count == 0, f"{scene}: {count} {name}")

    def note(self, sentence: str) -> None:
        """Tell a figure that the verdict does not depend on."""
        self.notes.append(sentence)

    def expect(self, fine: bool, problem: str) -> None:
        """Remember ``problem`` unless all is ``fine``."""
        if not fine:
            self.problems.append(problem)

    @property
    def total(self) -> Tally:
        return sum(self.scenes.values(), Tally())

    @property
    def passed(self) -> bool:
        """An experiment without scenes has shown nothing, so it has not passed."""
        return not self.problems and bool(self.scenes)

    @property
    def verdict(self) -> str:
        if self.passed:
            return f"{self.name} pass"
        return f"{self.name} FAIL {'; '.join(self.problems) or 'it had no scene'}"

    def __str__(self) -> str:
        lines = [f"{self.name} {scene}: {tally}" for scene, tally in self.scenes.items()]
        lines += [f"{self.name} {note}" for note in self.notes]
        if len(self.scenes) > 1:
            lines.append(f"{self.name} in all: {self.total}")
        return "\n".join([*lines, self.verdict])
