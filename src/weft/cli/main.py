"""The command line. A command's module is imported when the command is used, so that the others start at once."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer

from weft import __version__
from weft.cli.options import Options, Root, options_of
from weft.errors import Invalid, Misconfigured, WeftError

UsageError: Any = typer.BadParameter.__base__
"""Typer's own word for a line that it cannot read; it has no public name there."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command is, and what its line in the list of commands says."""

    where: str
    words: str


COMMANDS = {
    "up": Entry("weft.cli.up:up", "Run weft on this machine."),
    "serve": Entry("weft.cli.serve:serve", "Run the control process."),
    "worker": Entry("weft.cli.worker:app", "Lease runs and see them through."),
    "run": Entry("weft.cli.run:run", "Run a spider."),
    "crawl": Entry("weft.cli.crawl:crawl", "Crawl a whole site."),
    "crawls": Entry("weft.cli.crawls:app", "Crawls of whole sites."),
    "deploy": Entry("weft.cli.deploy:deploy", "Make code a version of its project."),
    "versions": Entry("weft.cli.versions:app", "The code of projects."),
    "spiders": Entry("weft.cli.versions:spiders", "List spiders and their arguments."),
    "tasks": Entry("weft.cli.tasks:app", "What to do and when."),
    "runs": Entry("weft.cli.runs:app", "What was done, is being done and waits."),
    "items": Entry("weft.cli.items:items", "What spiders have yielded."),
    "datasets": Entry("weft.cli.datasets:app", "What spiders have found so far."),
    "destinations": Entry("weft.cli.destinations:app", "Where the items of datasets are delivered to."),
    "proxies": Entry("weft.cli.proxies:app", "Ways out through proxies."),
    "submit": Entry("weft.cli.publish:submit", "Put orders into a message queue that weft takes them from."),
    "letters": Entry("weft.cli.letters:app", "Messages from queues that could not become a run."),
    "workers": Entry("weft.cli.workers:app", "Who does it."),
    "users": Entry("weft.cli.users:app", "Who may log in."),
    "keys": Entry("weft.cli.keys:app", "How programs say who they are."),
    "webhooks": Entry("weft.cli.webhooks:app", "Addresses that are told what happens."),
    "shares": Entry("weft.cli.shares:app", "Links by which guests see a project."),
    "top": Entry("weft.cli.top:top", "Watch the queue, the runs and the workers."),
    "login": Entry("weft.cli.login:login", "Speak to a weft elsewhere from now on."),
    "context": Entry("weft.cli.context:app", "Which weft the commands speak to."),
    "secrets": Entry("weft.cli.secrets:app", "What runs need and nobody may read."),
    "audit": Entry("weft.cli.audit:app", "Who changed what."),
    "import": Entry("weft.cli.import_:app", "Take over what another system has."),
    "config": Entry("weft.cli.config:config", "Print every setting and where its value comes from."),
    "doctor": Entry("weft.cli.doctor:doctor", "Check that everything weft needs is there."),
}
"""Every command. A function is a command, a Typer app a noun with verbs."""


class Commands(Root):
    """Knows every command by name and imports the one that is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = COMMANDS.get(cmd_name)
        return None if entry is None else loaded(cmd_name, entry)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.words) for name, entry in COMMANDS.items()])

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """The names, without importing what they stand for."""
        names = [name for name in COMMANDS if name.startswith(incomplete)]
        return [_completion(name) for name in names] or super().shell_complete(ctx, incomplete)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"weft {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Run crawlers: tasks become runs, runs are leased by workers, and nothing is lost."""
    given = _for_processes(options_of(context))
    context.default_map = {name: given | {"health": given, "stats": given} for name in ("up", "serve", "worker")}


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit: 0 done, 1 not done, 2 asked wrongly, 78 set up wrongly."""
    code = _run(args)
    _flush()
    gc.freeze()  # else Python looks through all that was loaded once more, for garbage that its end clears away anyhow
    sys.exit(code)


def _run(args: Sequence[str] | None) -> int:
    try:
        code = typer.main.get_command(app).main(args, prog_name="weft", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except WeftError as problem:
        complain(problem)
        return exit_code(problem)
    except UsageError as problem:
        return _refuse(problem)
    except typer.Abort:
        complain("nothing was done")
        return 1
    except BrokenPipeError:
        return 1
    except OSError as problem:
        complain(f"{problem.filename or 'the system'}: {problem.strerror or problem}")
        return 1


def exit_code(problem: WeftError) -> int:
    if isinstance(problem, Misconfigured):
        return 78
    return 2 if isinstance(problem, Invalid) else 1


def complain(problem: object) -> None:
    """One sentence on one line, whatever is in it."""
    from weft.cli.output import escaped

    print(escaped(" ".join(str(problem).split())), file=sys.stderr)


def _refuse(problem: Any) -> int:
    """Say what was asked wrongly; a command without its verb is answered with its help."""
    message = problem.format_message()
    if message.startswith("Usage:"):
        print(message, file=sys.stderr)
    else:
        path = problem.ctx.command_path if problem.ctx is not None else "weft"
        complain(f"{message.rstrip('.')}; `{path} --help` tells what is allowed")
    return 2


@cache
def loaded(name: str, entry: Entry) -> Any:
    """Import a command and make it ready to be called."""
    module, _, attribute = entry.where.partition(":")
    found = getattr(import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        found = _alone(name, found)
    found.rich_markup_mode = None
    command = typer.main.get_command(found)
    command.name = name
    command.params = [each for each in command.params if each.name not in ("install_completion", "show_completion")]
    return command


def _alone(name: str, function: Any) -> typer.Typer:
    """A function as a command; one that takes no options of its own for where weft is, takes those of all commands."""
    from weft.cli.options import Command

    one = typer.Typer(add_completion=False)
    own = "data_dir" in function.__annotations__
    one.command(name, cls=None if own else Command)(function)
    return one


def _for_processes(options: Options) -> dict[str, Any]:
    """The options that stood before ``up``, ``serve`` or ``worker``, which have them as their own."""
    given = {"data_dir": options.data_dir, "config": options.config and str(options.config)}
    return {name: value for name, value in given.items() if value is not None}


def _completion(name: str) -> Any:
    from typer.core import CompletionItem  # type: ignore[attr-defined]

    return CompletionItem(name, help=COMMANDS[name].words)


def _flush() -> None:
    """Write what is left; a reader that has gone (``weft runs list | head``) is no error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
