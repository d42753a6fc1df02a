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
from weft.cli.options import SharedOptions, WeftRoot, options_of
from weft.errors import DatabaseDamaged, Invalid, Misconfigured, WeftError

UsageError: Any = typer.BadParameter.__base__
"""Typer's own word for a line that it cannot read; it has no public name there."""


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """Where a command is, and what its line in the list of commands says."""

    where: str
    words: str


COMMANDS = {
    "up": CommandEntry("weft.cli.up:up", "Start the server and its workers on this machine."),
    "serve": CommandEntry("weft.cli.serve:serve", "Start the server without workers."),
    "worker": CommandEntry("weft.cli.worker:app", "Start a worker."),
    "run": CommandEntry("weft.cli.submit:run", "Run a spider."),
    "crawl": CommandEntry("weft.cli.crawls:crawl", "Crawl a whole site."),
    "crawls": CommandEntry("weft.cli.crawls:app", "Manage crawls of whole sites."),
    "deploy": CommandEntry("weft.cli.deploy:deploy", "Deploy code as a new version of its project."),
    "versions": CommandEntry("weft.cli.deploy:versions_app", "List, activate and delete versions of projects."),
    "spiders": CommandEntry("weft.cli.deploy:list_spiders", "List spiders and their arguments."),
    "tasks": CommandEntry("weft.cli.tasks:app", "Manage tasks and their schedules."),
    "runs": CommandEntry("weft.cli.runs:app", "List, inspect and control runs."),
    "items": CommandEntry("weft.cli.datasets:items", "Print the items of a spider or of a run."),
    "datasets": CommandEntry("weft.cli.datasets:app", "List, query and configure datasets."),
    "destinations": CommandEntry(
        "weft.cli.datasets:destinations_app", "Manage where the items of datasets are delivered."
    ),
    "proxies": CommandEntry("weft.cli.proxies:app", "Manage proxy plans."),
    "submit": CommandEntry("weft.cli.submit:publish", "Send messages to a queue that weft consumes."),
    "dead-letters": CommandEntry(
        "weft.cli.dead_letters:app",
        "List, edit and resubmit dead letters.",
    ),
    "workers": CommandEntry("weft.cli.workers:app", "List and manage workers."),
    "users": CommandEntry("weft.cli.access:users_app", "Manage users."),
    "keys": CommandEntry("weft.cli.access:keys_app", "Manage API keys."),
    "webhooks": CommandEntry("weft.cli.webhooks:app", "Manage webhooks and their deliveries."),
    "guest-links": CommandEntry("weft.cli.access:guest_links_app", "Manage guest links to a project."),
    "top": CommandEntry("weft.cli.workers:top", "Watch the queue, runs and workers live."),
    "login": CommandEntry("weft.cli.contexts:login", "Log in to a server; commands use it from now on."),
    "context": CommandEntry("weft.cli.contexts:app", "Choose which server commands use."),
    "secrets": CommandEntry("weft.cli.secrets:app", "Manage secrets: values that runs use and nobody can read back."),
    "audit": CommandEntry("weft.cli.access:audit_app", "Read, export and verify the audit log."),
    "import": CommandEntry("weft.cli.import_:app", "Import jobs, code and items from another system."),
    "config": CommandEntry("weft.cli.doctor:config", "Print every setting and where its value comes from."),
    "doctor": CommandEntry("weft.cli.doctor:doctor", "Check the installation for problems."),
}
"""Every command. A function is a command, a Typer app a noun with verbs."""


class RootCommand(WeftRoot):
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
    cls=RootCommand,
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
    """Schedule, run and monitor web crawlers."""
    given = _process_options(options_of(context))
    context.default_map = dict.fromkeys(("up", "serve", "worker"), given)


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
        return _report_usage_error(problem)
    except typer.Abort:
        complain("nothing was done")
        return 1
    except BrokenPipeError:
        return 1
    except OSError as problem:
        complain(f"{problem.filename or 'the system'}: {problem.strerror or problem}")
        return 1


def exit_code(problem: WeftError) -> int:
    if isinstance(problem, Misconfigured | DatabaseDamaged):
        return 78
    return 2 if isinstance(problem, Invalid) else 1


def complain(problem: object) -> None:
    """One sentence on one line, whatever is in it."""
    from weft.cli.output import escaped

    print(escaped(" ".join(str(problem).split())), file=sys.stderr)


def _report_usage_error(problem: Any) -> int:
    """Say what was asked wrongly; a command without its verb is answered with its help."""
    message = problem.format_message()
    if message.startswith("Usage:"):
        print(message, file=sys.stderr)
    else:
        path = problem.ctx.command_path if problem.ctx is not None else "weft"
        complain(f"{message.rstrip('.')}; `{path} --help` tells what is allowed")
    return 2


@cache
def loaded(name: str, entry: CommandEntry) -> Any:
    """Import a command and make it ready to be called."""
    module, _, attribute = entry.where.partition(":")
    found = getattr(import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        found = _single_command(name, found)
    found.rich_markup_mode = None
    command = typer.main.get_command(found)
    command.name = name
    command.params = [each for each in command.params if each.name not in ("install_completion", "show_completion")]
    return command


def _single_command(name: str, function: Any) -> typer.Typer:
    """A function as a command; one that takes no options of its own for where weft is, takes those of all commands."""
    from weft.cli.options import WeftCommand

    one = typer.Typer(add_completion=False)
    own = "data_dir" in function.__annotations__
    one.command(name, cls=None if own else WeftCommand)(function)
    return one


def _process_options(options: SharedOptions) -> dict[str, Any]:
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
