"""Starts weft, or another program, with one protection switched off, to show that an experiment would notice.

    python -m experiments.red r01:acknowledge_before_commit weft worker --name w1

A patch is a function of an experiment's module, without arguments; it changes the classes of weft in this process
only, before the program starts. The product itself has no such switches. The first word after the patch is the module
to run, the rest are its arguments.
"""

from __future__ import annotations

import importlib
import runpy
import sys


def main(arguments: list[str]) -> None:
    patch, module, *rest = arguments
    experiment, _, name = patch.partition(":")
    getattr(importlib.import_module(f"experiments.{experiment}"), name)()
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
