"""What was done with a button, as a command of curl, of weft and of Python: to be copied, changed and kept."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pprint import pformat
from typing import Any

import msgspec

from weft.operations.runs import RunDocument
from weft.runs.model import Retry

PLAIN: Mapping[str, Any] = {"labels": [], "tags": [], "timeout_seconds": 0.0, "grace_seconds": None}
"""What a run has where it says nothing."""
DEFAULT_RETRY = msgspec.json.decode(msgspec.json.encode(msgspec.structs.asdict(Retry())))
"""When a run is tried again where it says nothing."""
WIDTH = 88
PYTHON = """\
import asyncio
import os

from weft.client.client import connect{imports}


async def main():
    async with connect({address!r}, os.environ["WEFT_KEY"]) as weft:
        {call}


asyncio.run(main())"""


@dataclass(frozen=True, slots=True)
class StartCommands:
    """One start of a run, in three languages."""

    curl: str
    cli: str
    python: str


def start_commands(address: str, body: Mapping[str, Any]) -> StartCommands:
    """What starts the run that ``body`` asks ``POST /v1/runs`` for, at the weft with this address."""
    return StartCommands(_curl(address, body), _cli(body), _python(address, body))


def rerun_commands(address: str, run_id: int) -> StartCommands:
    """What repeats a run as it was: for one that was given more than a command should hold."""
    place = f"{address}/v1/runs/{run_id}/again"
    curl = f'curl -X POST {shlex.quote(place)} \\\n  -H "Authorization: Bearer $WEFT_KEY"'
    call = f"print(await weft.runs.again({run_id}))"
    return StartCommands(curl, f"weft runs again {run_id}", PYTHON.format(imports="", address=address, call=call))


def started_input(document: RunDocument | Mapping[str, Any]) -> dict[str, Any]:
    """What to ask for, so that a run like this one starts."""
    run = msgspec.json.decode(msgspec.json.encode(document))
    told = run["spec"]
    if run["task_id"] is not None:
        body = {"project": run["project"], "task": run["task"]}
        return body | ({"params": told["params"]} if told["params"] else {})
    body = {"project": run["project"], "kind": run["kind"], "name": run["task"], "spec": told["spec"]}
    body |= {name: told[name] for name, usual in PLAIN.items() if told[name] != usual}
    retry = {name: value for name, value in told["retry"].items() if value != DEFAULT_RETRY[name]}
    body |= {"retry": retry} if "count" in retry else {}
    return body | ({"priority": run["priority"]} if run["priority"] else {})


def _curl(address: str, body: Mapping[str, Any]) -> str:
    text = msgspec.json.format(msgspec.json.encode(body), indent=2).decode()
    return (
        f"curl -X POST {shlex.quote(address + '/v1/runs')} \\\n"
        '  -H "Authorization: Bearer $WEFT_KEY" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f"  -d {shlex.quote(text)}"
    )


def _cli(body: Mapping[str, Any]) -> str:
    if "task" in body:
        name = f"{body['project']}/{body['task']}"
        parts = ["weft", "tasks", "run", name, *_pairs("-p", body.get("params", {}))]
    elif body["kind"] == "spider" and _is_plain(body):
        parts = _cli_of_spider(body)
    else:
        spec = msgspec.json.encode(body["spec"]).decode()
        parts = ["weft", "--project", body["project"], "runs", "submit", "--kind", body["kind"], "--spec", spec]
        parts += [
            "--name",
            body["name"],
            *_repeated_options("--worker-label", "labels", body),
            *_repeated_options("--tag", "tags", body),
            *_numbers(body),
        ]
    return " ".join(shlex.quote(part) for part in parts)


def _is_plain(body: Mapping[str, Any]) -> bool:
    """Whether ``weft run`` can say all of it."""
    known = {"spider", "args", "settings", "version", "isolation", "limits", "dataset", "resumable"}
    return set(body["spec"]) <= known and body["name"] == body["spec"]["spider"] and "tags" not in body


def _cli_of_spider(body: Mapping[str, Any]) -> list[str]:
    spec = body["spec"]
    parts = ["weft", "--project", body["project"], "run", spec["spider"], *_pairs("-a", spec.get("args", {}))]
    parts += _pairs("-s", spec.get("settings", {}))
    for option, name in (("--code-version", "version"), ("--isolation", "isolation"), ("--dataset", "dataset")):
        parts += [option, str(spec[name])] if spec.get(name) is not None else []
    parts += _pairs("--resource-limit", spec.get("limits") or {})
    parts += ["--resumable"] if spec.get("resumable") else []
    return [*parts, *_repeated_options("--worker-label", "labels", body), *_numbers(body)]


def _pairs(option: str, values: Mapping[str, Any]) -> list[str]:
    return [part for name, value in values.items() for part in (option, f"{name}={_text(value)}")]


def _repeated_options(option: str, name: str, body: Mapping[str, Any]) -> list[str]:
    return [part for value in body.get(name, ()) for part in (option, value)]


def _numbers(body: Mapping[str, Any]) -> list[str]:
    timeout = ["--timeout", f"{body['timeout_seconds']:g}"] if "timeout_seconds" in body else []
    retries = ["--retries", str(body["retry"]["count"])] if "retry" in body else []
    return timeout + retries + (["--priority", str(body["priority"])] if "priority" in body else [])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _python(address: str, body: Mapping[str, Any]) -> str:
    if "task" in body:
        given = [repr(body["project"]), repr(body["task"]), *([_literal(body["params"])] if "params" in body else [])]
        call = f"print(await weft.tasks.start({', '.join(given)}))"
        return PYTHON.format(imports="", address=address, call=call)
    spec = [f"spec={_literal(body['spec'])}"]
    spec += [f"{name}={_literal(_kept_options(body[name]))}" for name in PLAIN if name in body]
    spec += [f"retry=Retry(count={body['retry']['count']})"] if "retry" in body else []
    fields = [f"{name}={body[key]!r}" for name, key in (("project", "project"), ("task", "name"), ("kind", "kind"))]
    fields += [f"priority={body['priority']}"] if "priority" in body else []
    run = f"run = NewRun({', '.join(fields)}, spec=RunSpec({', '.join(spec)}))"
    names = "NewRun, Retry, RunSpec" if "retry" in body else "NewRun, RunSpec"
    call = f"{run}\n        print(await weft.runs.submit([run]))"
    return PYTHON.format(imports=f"\nfrom weft.runs.model import {names}", address=address, call=call)


def _kept_options(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _literal(value: Any) -> str:
    return pformat(value, width=WIDTH, sort_dicts=False).replace("\n", "\n        ")
