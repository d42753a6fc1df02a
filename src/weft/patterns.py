"""Regular expressions that users give. They are matched by RE2, in time that grows with the text and nothing else.

Python's own ``re`` tries one way after the other: ``(a+)+$`` on forty letters takes longer than anybody waits, and
holds the whole process meanwhile. So no pattern of a user is ever given to ``re``.
"""

from __future__ import annotations

from functools import lru_cache

from weft.errors import Invalid

LARGEST = 5_000
"""Steps of a compiled pattern, which its time grows with too: each repetition of ``.`` has eight."""

SYNTAX = "see docs/reference/patterns.md"
_LACKS = {
    "(?=": ("look-ahead", "say what must be there, and use a second pattern for what must not"),
    "(?!": ("look-ahead", "say what must be there, and use a second pattern for what must not"),
    "(?<=": ("look-behind", "match the text before it as well"),
    "(?<!": ("look-behind", "match the text before it as well"),
    "(?P=": ("back-reference", "write out what may be repeated"),
    "(?>": ("atomic group", "write a plain group (?:…)"),
    "(?(": ("condition", "write both cases as (?:…|…)"),
    "(?x": ("verbose flag", "write the pattern without blanks and comments"),
    "(?#": ("comment", "leave it out"),
    "\\Z": ("anchor", "write \\z"),
}
"""What Python knows and RE2 does not: its name, and what to do instead."""


class Pattern:
    """A compiled regular expression."""

    __slots__ = ("_find", "_match", "text")

    def __init__(self, text: str, field: str) -> None:
        import re2  # Not at the top: most commands match nothing.

        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        try:
            found = re2.compile(text.encode(errors="replace"), options)
        except re2.error as problem:
            raise Invalid(field, text, _why(text, problem)) from None
        if found.programsize > LARGEST:
            allowed = f"it must be a smaller pattern: it has {found.programsize:,} steps, and {LARGEST:,} are allowed"
            raise Invalid(field, text, f"{allowed}; repeat less, or a smaller part")
        self.text = text
        self._find = found.search
        self._match = found.fullmatch

    def is_in(self, text: str | bytes) -> bool:
        """Whether it is found anywhere in the text."""
        return self._find(text if isinstance(text, bytes) else text.encode(errors="replace")) is not None

    def is_all_of(self, text: str | bytes) -> bool:
        """Whether the whole text is as it says."""
        return self._match(text if isinstance(text, bytes) else text.encode(errors="replace")) is not None


@lru_cache(200)
def compiled(pattern: str, field: str = "pattern") -> Pattern:
    """The pattern, ready to match; ``Invalid`` names ``field`` and says what of it RE2 lacks, where, and what to do."""
    return Pattern(pattern, field)


def _why(pattern: str, problem: Exception) -> str:
    told = problem.args[0] if problem.args else ""
    told = told.decode(errors="replace") if isinstance(told, bytes) else str(told)
    kind, _, part = told.rpartition(": ")
    if kind == "invalid perl operator" or part == "\\Z":
        # RE2 shows no more than the first signs of a look-behind, so the pattern itself is asked.
        at = pattern.find(part)
        part = next((each for each in sorted(_LACKS, key=len, reverse=True) if pattern.startswith(each, at)), part)
    if part == "(?P" and "(?P=" in pattern:
        part = "(?P="
    lacks = _LACKS.get(part)
    if kind == "invalid escape sequence" and part[1:].isdigit():
        lacks = _LACKS["(?P="]
    elif kind == "bad repetition operator" and part.endswith("+"):
        lacks = ("possessive repetition", f"write {part[:-1]}")
    if lacks is None:
        return f"it must be a regular expression of RE2 ({told}); {SYNTAX}"
    name, instead = lacks
    at = pattern.find(part) + 1
    return f"it must be a regular expression without {name} ({part} at character {at}): {instead}; {SYNTAX}"
