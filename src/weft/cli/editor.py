"""Lets a person edit a text with the editor that they have chosen."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from weft.errors import Invalid


def edited(text: str, *, suffix: str) -> str:
    """The text as the person leaves it. It lies in a file that nobody else can read, and only for so long."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not command and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Invalid("EDITOR", "not set", "it must name an editor where nobody can be asked; or give --file or --body")
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        file = Path(folder, f"edited{suffix}")
        file.write_text(text, encoding="utf-8", newline="")
        _run([*shlex.split(command or "vi"), str(file)])
        return file.read_bytes().decode(errors="surrogateescape")


def _run(command: list[str]) -> None:
    try:
        code = subprocess.run(command, check=False).returncode
    except OSError as problem:
        raise Invalid("EDITOR", command[0], f"it must be a program that can be started ({problem.strerror})") from None
    if code != 0:
        raise Invalid("EDITOR", command[0], f"it ended with code {code}, so nothing was changed")
