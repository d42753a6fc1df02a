"""The end of a spider's process."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import NoReturn


def leave(code: int) -> NoReturn:
    """End as the interpreter would (threads, exit functions, buffers), but without taking its memory apart.

    Taking it apart would write to every page that is shared with the zygote.
    """
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(code)
