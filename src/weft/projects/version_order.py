"""Which of two versions is the newer one, by their names: 1.10 after 1.9, 1.0rc1 before 1.0.

Every name has its place: numbers count as numbers, words as words, and what comes before a release is known by its
word. Names that say nothing about their order, such as those of commits, are in the order of their letters.
"""

from __future__ import annotations

import re

BEFORE = {"dev": 0, "a": 1, "alpha": 1, "b": 2, "beta": 2, "c": 3, "rc": 3, "pre": 3, "preview": 3}
"""Words that come before the release that they are part of."""
PARTS = re.compile(r"[0-9]+|[A-Za-z]+")
COMMIT = re.compile(r"(?=.*[0-9])(?=.*[a-f])[0-9a-f]{7,64}", re.ASCII)
SINCE = re.compile(r"(?P<tag>.+)-(?P<count>[0-9]+)-g[0-9a-f]{4,40}(?P<rest>-.*)?", re.ASCII)
"""What git calls a commit after a tag: after that version, before the next."""

Part = tuple[int, int, str]
END: Part = (1, 0, "")


def version_key(version: str) -> tuple[tuple[Part, ...], str]:
    """What versions are sorted by. No two have the same."""
    if COMMIT.fullmatch(version):
        return ((2, 0, version), END), version
    if found := SINCE.fullmatch(version):
        return (*_parts(found["tag"]), (2, int(found["count"]), ""), *_parts(found["rest"] or ""), END), version
    return (*_parts(version), END), version


def _parts(version: str) -> list[Part]:
    return [_part(text) for text in PARTS.findall(_bare(version))]


def _bare(version: str) -> str:
    return version[1:] if version[:1] in "vV" and version[1:2].isdigit() else version


def _part(text: str) -> Part:
    if text.isdigit():
        return (3, int(text), "")
    word = text.lower()
    return (0, BEFORE[word], "") if word in BEFORE else (2, 0, word)
