"""What pages say, in the languages that they speak.

A text is known by its English words. ``words/`` has a file for each group of pages, in which each text stands with its
translations; a test looks for texts that a page has and a file has not.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "words"
LANGUAGES = {"en": "English", "zh": "中文", "ja": "日本語"}
ENGLISH = "en"

Translate = Callable[..., str]


@cache
def catalogue(language: str) -> Mapping[str, str]:
    """Every text in a language, by its English words."""
    found: dict[str, str] = {}
    for file in sorted(FOLDER.glob("*.toml")):
        for text, translations in tomllib.loads(file.read_text(encoding="utf-8")).items():
            found[text] = translations[language]
    return found


@cache
def translator(language: str) -> Translate:
    """Says a text in a language; ``{name}`` in it is replaced by what is given under that name."""
    known: Mapping[str, str] = {} if language == ENGLISH else catalogue(language)

    def say(text: str, **values: Any) -> str:
        words = known.get(text, text)
        return words.format(**values) if values else words

    return say


def N_(text: str) -> str:
    """Marks a text in Python that a template says later on, so that the test finds it."""
    return text


def negotiated_language(wanted: str, accepted: str) -> str:
    """The language that was chosen, else the first of those that a browser accepts and we speak."""
    if wanted in LANGUAGES:
        return wanted
    for part in accepted.lower().split(","):
        tongue = part.partition(";")[0].strip().partition("-")[0]
        if tongue in LANGUAGES:
            return tongue
    return ENGLISH
