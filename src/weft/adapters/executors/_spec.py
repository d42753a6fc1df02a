"""Reads the fields of a task's spec, among them the limits of a run, and names the field that is not allowed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeGuard

import msgspec

from weft import user_code
from weft.adapters.executors._process_groups import tag_of
from weft.errors import Invalid
from weft.ports import Work
from weft.user_code import LEAST, LEVELS


class Fields:
    """A spec, field by field; an absent field and ``null`` are the same."""

    def __init__(self, kind: str, spec: Mapping[str, Any], allowed: Collection[str]) -> None:
        self._kind, self._spec = kind, spec
        if not isinstance(spec, Mapping):
            raise Invalid(f"the spec of {kind}", spec, f"it must be a map with {', '.join(allowed)}")
        for name in spec:
            if name not in allowed:
                raise Invalid(f"a field of {kind}", name, f"the fields of {kind} are {', '.join(allowed)}")

    def __contains__(self, name: str) -> bool:
        return self._spec.get(name) is not None

    def value(self, name: str) -> Any:
        return self._spec.get(name)

    def refusal(self, name: str, allowed: str) -> Invalid:
        return Invalid(f"{self._kind}.{name}", self._spec.get(name), allowed)

    def only_one(self, *names: str) -> None:
        """Refuse fields that say the same thing twice."""
        given = [name for name in names if name in self]
        if len(given) > 1:
            raise self.refusal(given[1], f"only one of {' and '.join(names)} may be given")

    def text(self, name: str) -> str | None:
        value = self.value(name)
        if value is not None and not is_text(value):
            raise self.refusal(name, "it must be a string without NUL characters")
        return value

    def words(self, name: str) -> tuple[str, ...] | None:
        """A list of strings with at least one, as a command line is."""
        value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not value or not value[0] or not all(map(is_text, value)):
            raise self.refusal(name, "it must be a list of strings, the first of which is not empty")
        return tuple(value)

    def texts(self, name: str) -> dict[str, str]:
        """A map of strings to strings."""
        value = self.value(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping) or not all(is_text(key) and is_text(value[key]) for key in value):
            raise self.refusal(name, "it must be a map of strings to strings")
        return dict(value)

    def number(self, name: str, default: float, *, least: float, most: float) -> float:
        value = default if name not in self else self.value(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise self.refusal(name, f"it must be a number from {least:g} to {most:g}")
        return value

    def whole(self, name: str, default: int, *, least: int, most: int) -> int:
        value = default if name not in self else self.value(name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.refusal(name, f"it must be a whole number from {least} to {most}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = default if name not in self else self.value(name)
        if not isinstance(value, bool):
            raise self.refusal(name, "it must be true or false")
        return value


def is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and "\0" not in value


MIB = 2**20


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Each limit of a run; 0 where it says so is none."""

    memory_bytes: int = 1024 * MIB
    """Of all its processes together."""

    cpu_seconds: int = 0
    """Of all its processes together; 0 is none."""

    processes: int = 64
    threads: int = 1000
    """Of all its processes together."""

    files: int = 1024
    """Open at a time, in each process."""

    disk_bytes: int = 2048 * MIB
    """In the run's folder, and of one file."""

    disk_files: int = 100_000
    """In the run's folder; folders count."""

    item_bytes: int = 10_000_000
    """Of one item."""

    items: int = 0
    """0 is none."""

    stalled_seconds: int = 0
    """Without a request, a response or an item; 0 is none."""

    @classmethod
    def of(cls, spec: Mapping[str, Any], names: Collection[str] = ()) -> Limits:
        """The ``limits`` of a spec, with defaults for what they do not name; Invalid names what is not allowed.

        ``names`` are the limits that there are for its kind, where not all of them are.
        """
        fields = Fields("limits", spec, tuple(names) or tuple(RANGES))
        defaults = cls()
        return cls(
            **{
                name: fields.whole(name, getattr(defaults, name), least=least, most=most)
                for name, (least, most) in RANGES.items()
                if not names or name in names
            }
        )


def limits_of(work: Work, limits: Limits) -> dict[str, int]:
    """What the processes of a run are held to by the kernel, and how they are found."""
    return {**msgspec.structs.asdict(limits), "mark": tag_of(work.folder), **user_code.of_older_kernels()}


def isolation_of(fields: Fields) -> str:
    """The level that a spec asks for."""
    level = fields.text("isolation") or LEAST
    if level not in LEVELS:
        raise fields.refusal("isolation", f"it must be {', '.join(LEVELS[:-1])} or {LEVELS[-1]}")
    return level


RANGES = {
    "memory_bytes": (64 * MIB, 2**50),
    "cpu_seconds": (0, 2**31),
    "processes": (1, 100_000),
    "threads": (1, 1_000_000),
    "files": (64, 1_000_000),
    "disk_bytes": (MIB, 2**50),
    "disk_files": (100, 2**31),
    "item_bytes": (1, 16_000_000),
    "items": (0, 2**62),
    "stalled_seconds": (0, 2**31),
}
"""The least and the most that each limit may be."""

OF_PROCESSES = ("memory_bytes", "cpu_seconds", "processes", "threads", "files", "disk_bytes", "disk_files")
"""The limits that hold for whatever a process does."""
