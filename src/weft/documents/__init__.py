"""What leaves weft as JSON: the same documents from the API, the command line and webhooks.

Field names stay, every field is always there, ids are numbers, times are texts in RFC 3339 and UTC.
"""

from weft.documents.copying import Time
from weft.documents.runs import (
    AttemptDocument,
    RetryDocument,
    RunDocument,
    SpecDocument,
    attempt_document,
    retry_document,
    run_document,
    spec_document,
)
from weft.documents.shelf import Shelf
from weft.documents.tasks import (
    AfterDocument,
    ChangedField,
    ChangeDocument,
    DedupDocument,
    ScheduleDocument,
    TaskDocument,
    TickDocument,
    change_document,
    task_document,
    task_page,
    tick_document,
)
from weft.documents.workers import WorkerDocument, worker_document

__all__ = [
    "AfterDocument",
    "AttemptDocument",
    "ChangeDocument",
    "ChangedField",
    "DedupDocument",
    "RetryDocument",
    "RunDocument",
    "ScheduleDocument",
    "Shelf",
    "SpecDocument",
    "TaskDocument",
    "TickDocument",
    "Time",
    "WorkerDocument",
    "attempt_document",
    "change_document",
    "retry_document",
    "run_document",
    "spec_document",
    "task_document",
    "task_page",
    "tick_document",
    "worker_document",
]
