"""User code in the sandbox, in a process of its own: the process of the tests never enters it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import weft.agent

AGENT = Path(weft.agent.__file__).parent
PATIENCE_SECONDS = 60

ENTER = """
import importlib.util, json, os, sys
agent, words = sys.argv[1], json.loads(sys.argv[2])
spec = importlib.util.spec_from_file_location("weft_agent", agent + "/__init__.py", submodule_search_locations=[agent])
sys.modules["weft_agent"] = importlib.util.module_from_spec(spec)
from weft.agent import sandbox
REACHED = sandbox.enter(words["isolation"], read=words["read"], write=words["write"], limits=words["limits"])
LEVEL = REACHED.level

def tried(act, *arguments):
    try:
        act(*arguments)
    except OSError as refused:
        return type(refused).__name__
    return "allowed"
"""


def command(
    code: str,
    *,
    isolation: str = "L1",
    read: Sequence[Path] = (),
    write: Sequence[Path] = (),
    limits: Mapping[str, Any] | None = None,
) -> list[str]:
    """The command line that enters the sandbox and then runs ``code``."""
    words = {
        "isolation": isolation,
        "read": [str(path) for path in read],
        "write": [str(path) for path in write],
        "limits": dict(limits or {}),
    }
    return [sys.executable, "-I", "-c", ENTER + code, str(AGENT), json.dumps(words)]


def sandboxed(code: str, **words: Any) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in the sandbox to its end."""
    return subprocess.run(
        command(code, **words), capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False, cwd="/"
    )


def said(code: str, **words: Any) -> Any:
    """What ``code``, an expression, is in the sandbox."""
    ended = sandboxed(f"print(json.dumps({code}))", **words)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)
