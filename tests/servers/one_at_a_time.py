"""moto's server, which answers one call after another: ``python one_at_a_time.py PORT``.

Before each item of a transaction moto copies the whole table. Here it copies, once, what the transaction may change.
"""

import copy
import sys
from typing import Any

from moto.dynamodb import models
from moto.dynamodb.models import DynamoDBBackend
from moto.dynamodb.models.table import Table
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

PART = "part"


class Copies:
    """What moto puts aside while it makes a transaction."""

    def __init__(self, changes: list[dict[str, Any]]) -> None:
        items = [next(iter(change.values())) for change in changes]
        self._parts = {each.get("Key", each.get("Item"))[PART]["S"] for each in items}
        self._aside: dict[int, Table] = {}

    def deepcopy(self, value: Any) -> Any:
        if not isinstance(value, Table):
            return copy.deepcopy(value)
        if id(value) not in self._aside:
            aside = self._aside[id(value)] = copy.copy(value)
            aside.items = copy.copy(value.items)
            for key in [key for key in value.items if key.value in self._parts]:
                aside.items[key] = copy.deepcopy(value.items[key])
        return self._aside[id(value)]


def transact(self: DynamoDBBackend, transact_items: list[dict[str, Any]]) -> None:
    setattr(models, "copy", Copies(transact_items))  # noqa: B010  # moto's own import of it
    try:
        whole_transaction(self, transact_items)
    finally:
        setattr(models, "copy", copy)  # noqa: B010


whole_transaction = DynamoDBBackend.transact_write_items

if __name__ == "__main__":
    setattr(DynamoDBBackend, "transact_write_items", transact)  # noqa: B010
    run_simple("127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=False)
