"""A RabbitMQ with nothing in its plugins folder but what it needs itself.

Erlang looks for every module in each folder of its path, one after the other. Without the fifty plugins that nobody has
switched on, a node is up in less than half of the time.
"""

import re
from collections.abc import Iterable
from pathlib import Path

ROOTS = ("rabbit", "rabbitmq_prelaunch")
_APPLICATIONS = re.compile(r"\{applications,\s*\[([^\]]*)\]")


def make_home(program: Path, home: Path) -> Path:
    """Fill ``home`` with links to what is installed; where its scripts are."""
    installed = program.resolve().parent.parent
    for folder in ("sbin", "escript"):
        _link((installed / folder).iterdir(), home / folder)
    _link(needed(installed / "plugins"), home / "plugins")
    return home / "sbin"


def needed(plugins: Path) -> list[Path]:
    """The folders of RabbitMQ itself and of all that it is built on; what is missing there is Erlang's own."""
    folders = {path.name.rpartition("-")[0]: path for path in plugins.iterdir()}
    found: dict[str, Path] = {}
    names = list(ROOTS)
    while names:
        name = names.pop()
        if name in folders and name not in found:
            found[name] = folders[name]
            names += _built_on(folders[name] / "ebin" / f"{name}.app")
    return sorted(found.values())


def _built_on(description: Path) -> list[str]:
    listed = _APPLICATIONS.search(description.read_text())
    return [name.strip() for name in listed[1].split(",")] if listed else []


def _link(what: Iterable[Path], folder: Path) -> None:
    folder.mkdir(parents=True)
    for each in what:
        (folder / each.name).symlink_to(each)
