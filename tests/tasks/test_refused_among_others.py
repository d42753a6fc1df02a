"""What is refused spoils nothing that is submitted at the same time: the rest is queued in the same transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from tests.runs.acting import new_run
from weft.app import App
from weft.db.database import Transaction
from weft.runs.model import NewRun
from weft.tasks.model import Task
from weft.tasks.tasks import TaskStart


async def outcomes(app: App, submits: Sequence[Sequence[TaskStart | NewRun]]) -> list[str]:
    """What came of submits that were made at once."""
    answers = await asyncio.gather(*map(app.tasks.submit, submits), return_exceptions=True)
    return [type(each).__name__ if isinstance(each, BaseException) else f"{len(each)} queued" for each in answers]


def count_lots(app: App) -> list[Any]:
    """Fills with one item for each transaction that is made from here on."""
    made: list[Any] = []
    transact = app.db.transact

    async def counted(work: Callable[[Transaction], Any], **options: Any) -> Any:
        made.append(work)
        return await transact(work, **options)

    app.db.transact = counted  # type: ignore[method-assign]
    return made


def keyed(priority: int, key: str = "same") -> NewRun:
    return new_run(idempotency_key=key, priority=priority)


async def test_keys_that_were_used_for_another_request_are_refused_and_the_rest_is_one_transaction(app: App) -> None:
    await app.tasks.submit([keyed(1)])
    made = count_lots(app)
    submits = [[new_run()], [keyed(2)], [new_run(), new_run()], [keyed(1)], [new_run(), keyed(3)], [new_run()]]
    assert await outcomes(app, submits) == ["1 queued", "Conflict", "2 queued", "1 queued", "Conflict", "1 queued"]
    assert len(made) <= 2
    assert len(await app.runs.find({})) == 5


async def test_of_those_who_use_a_new_key_at_once_the_first_gets_it(app: App) -> None:
    made = count_lots(app)
    submits = [[new_run()], [keyed(1)], [keyed(2)], [new_run()], [keyed(1)], [keyed(3), new_run()], [new_run()]]
    found = await outcomes(app, submits)
    assert found == ["1 queued", "1 queued", "Conflict", "1 queued", "1 queued", "Conflict", "1 queued"]
    assert len(made) <= 2
    assert len(await app.runs.find({})) == 4


async def test_a_key_is_not_used_by_a_submit_that_is_refused(app: App) -> None:
    await app.tasks.submit([keyed(1, "old")])
    found = await outcomes(app, [[new_run()], [keyed(1, "new"), keyed(2, "old")], [keyed(2, "new")]])
    assert found == ["1 queued", "Conflict", "1 queued"]


async def test_starts_of_no_task_and_with_wrong_parameters_are_refused_alone(app: App) -> None:
    task = Task(project="shop", name="prices", kind="noop", spec={}, params={"page": None})
    await app.tasks.put(task)
    made = count_lots(app)

    def start(name: str = "prices", **params: Any) -> TaskStart:
        return TaskStart(project="shop", task=name, params=params)

    submits: list[list[TaskStart | NewRun]] = [
        [start(page=1)],
        [start("none", page=1)],
        [start(page=2), start()],
        [start(page=3)],
        [keyed(1, "x" * 999)],
    ]
    assert await outcomes(app, submits) == ["1 queued", "NotFound", "Invalid", "1 queued", "Invalid"]
    assert len(made) <= 2
    assert len(await app.runs.find({})) == 2
