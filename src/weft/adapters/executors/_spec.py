"""Reads the fields of a task's spec, and refuses with the field's name what a kind does not allow."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeGuard

from weft.errors import Invalid


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
