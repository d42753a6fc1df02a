"""The page on the architecture: what it names is there, and it leaves no package out."""

import re
from pathlib import Path

from tests.cases import for_each

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "weft"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PATHS = sorted(set(re.findall(r"`([\w./]+(?:\.py|\.toml|/))`", PAGE)))
PACKAGES = sorted(folder for folder in SOURCE.iterdir() if any(folder.rglob("*.py")))
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", PAGE.partition("## Where do I change")[2], re.MULTILINE)
MOST_FILES = 30


@for_each("path", PATHS)
def test_each_path_of_the_page_exists(path: str) -> None:
    assert (SOURCE / path).exists() or (ROOT / path).exists()


def test_the_page_has_a_line_for_each_package() -> None:
    packages = {f"{folder.name}/" for folder in PACKAGES}
    assert set(re.findall(r"^- `(\w+/)`: ", PAGE, re.MULTILINE)) == packages


def test_each_row_of_the_table_says_where() -> None:
    assert len(ROWS) > 20
    vague = [what for what, where in ROWS[1:] if not re.search(r"`[\w./]+`", where) and what != "what"]
    assert not vague


def test_no_folder_has_more_files_than_a_reader_keeps_in_mind() -> None:
    folders = {file.parent for file in SOURCE.rglob("*.py")}
    counts = {str(folder.relative_to(SOURCE)): len(list(folder.glob("*.py"))) for folder in folders}
    assert {name: count for name, count in counts.items() if count > MOST_FILES} == {}
