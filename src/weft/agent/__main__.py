"""Where the agent's processes begin: ``python -I <this file> zygote``, ``run …``, ``inspect …`` or ``compile …``.

It is started by its path, because the interpreter of a project has Scrapy but need not have weft.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

USAGE = (
    "usage: python -I __main__.py zygote | run <run folder> | inspect <code folder> <settings module>"
    " | compile <code folder> [<sandbox>]"
)


def part(name: str) -> ModuleType:
    """One module of the agent, under the name that its relative imports expect."""
    folder = Path(__file__).resolve().parent
    if "weft_agent" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "weft_agent", folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None
        assert spec.loader is not None
        package = importlib.util.module_from_spec(spec)
        sys.modules["weft_agent"] = package
        spec.loader.exec_module(package)
    return importlib.import_module(f"weft_agent.{name}")


def main(words: list[str]) -> int:
    if words == ["zygote"]:
        return int(part("zygote").main())
    if len(words) == 2 and words[0] == "run":
        return int(part("cold").main(Path(words[1])))
    if len(words) == 3 and words[0] == "inspect":
        return int(part("inspection").main(Path(words[1]), words[2]))
    if len(words) in (2, 3) and words[0] == "compile":
        return int(part("compiling").main(Path(words[1]), *words[2:]))
    sys.stderr.write(USAGE + "\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
