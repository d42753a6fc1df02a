"""Every text of a page is there in every language."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import weft.web
from weft.operations.problems import TITLES
from weft.web.translations import ENGLISH, FOLDER, LANGUAGES, negotiated_language, translator

WEB = Path(weft.web.__file__).parent
TEXT = r'"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\''
SAID = re.compile(rf"\b_\(\s*(?:{TEXT})")
MARKED = re.compile(rf"\bN_\(\s*(?:{TEXT})")
OTHERS = [language for language in LANGUAGES if language != ENGLISH]
FILES = sorted(FOLDER.glob("*.toml"))
GAP = re.compile(r"\{(\w*)[^}]*\}")


def found(pattern: re.Pattern[str], files: list[Path]) -> dict[str, str]:
    """Each text, with the file that it is in."""
    return {
        re.sub(r"\\(.)", r"\1", double or single): file.name
        for file in files
        for double, single in pattern.findall(file.read_text(encoding="utf-8"))
    }


SPOKEN = found(SAID, sorted(WEB.rglob("*.html"))) | found(MARKED, sorted(WEB.rglob("*.py")))
KNOWN = {
    text: (file, translations)
    for file in FILES
    for text, translations in tomllib.loads(file.read_text(encoding="utf-8")).items()
}


def test_there_is_something_to_say() -> None:
    assert len(SPOKEN) > 20


def test_every_text_of_a_page_is_in_a_catalogue() -> None:
    assert {text: file for text, file in SPOKEN.items() if text not in KNOWN} == {}


def test_every_title_of_a_problem_is_in_a_catalogue() -> None:
    assert [title for _, title in TITLES.values() if title not in KNOWN] == []


@pytest.mark.parametrize("language", OTHERS)
def test_every_text_is_translated_with_the_same_gaps(language: str) -> None:
    wrong = [
        text
        for text, (_, translations) in KNOWN.items()
        if not translations.get(language, "").strip()
        or sorted(GAP.findall(translations[language])) != sorted(GAP.findall(text))
    ]
    assert wrong == []


def test_no_text_is_in_two_catalogues() -> None:
    texts = [text for file in FILES for text in tomllib.loads(file.read_text(encoding="utf-8"))]
    assert sorted({text for text in texts if texts.count(text) > 1}) == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_text_is_said_with_what_is_put_into_it(language: str) -> None:
    assert translator(language)("a text that nobody knows: {name}", name="<b>") == "a text that nobody knows: <b>"


@pytest.mark.parametrize(
    ("wanted", "accepted", "language"),
    [
        ("", "", "en"),
        ("ja", "zh-CN", "ja"),
        ("xx", "fr, zh-CN;q=0.8, en;q=0.5", "zh"),
        ("", "ja-JP", "ja"),
        ("", "*;q=0.1,,;", "en"),
    ],
)
def test_the_language_is_chosen_or_one_that_the_browser_takes(wanted: str, accepted: str, language: str) -> None:
    assert negotiated_language(wanted, accepted) == language
