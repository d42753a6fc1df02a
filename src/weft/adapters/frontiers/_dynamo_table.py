"""Items of DynamoDB as plain values, and changes of them as expressions. No I/O."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError

from weft.errors import FrontierDown, FrontierLost, Misconfigured

Key = tuple[str, str]
Item = dict[str, Any]

_NAMES, _VALUES = re.compile(r"#(\w+)"), re.compile(r":(\w+)")


@dataclass(frozen=True, slots=True)
class Same:
    """The value that another attribute of the same item has."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is to become of one item, and under which condition."""

    key: Key
    item: Item | None = None
    """All of it, instead of what was there."""
    sets: Mapping[str, Any] = field(default_factory=dict)
    adds: Mapping[str, int] = field(default_factory=dict)
    removes: Iterable[str] = ()
    only_if: str = ""
    """A condition with #names and :values."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Those of the condition."""

    def packed(self, table: str) -> dict[str, Any]:
        place = {"part": pack(self.key[0]), "url_hash": pack(self.key[1])}
        told: dict[str, Any] = {"TableName": table}
        if self.only_if:
            told["ConditionExpression"] = self.only_if
        if self.item is not None:
            told["Item"] = place | {name: pack(value) for name, value in self.item.items()}
            return {"Put": told | parts_of_expression([self.only_if], dict(self.values))}
        update, values = self._update()
        expression = {"Key": place, "UpdateExpression": update}
        return {"Update": told | expression | parts_of_expression([update, self.only_if], values | dict(self.values))}

    def _update(self) -> tuple[str, dict[str, Any]]:
        values = {f"set_{name}": value for name, value in self.sets.items() if not isinstance(value, Same)}
        values |= {f"add_{name}": value for name, value in self.adds.items()}
        sets = [
            f"#{name} = " + (f"#{value.name}" if isinstance(value, Same) else f":set_{name}")
            for name, value in self.sets.items()
        ]
        clauses = {
            "SET": sets,
            "ADD": [f"#{name} :add_{name}" for name in self.adds],
            "REMOVE": [f"#{name}" for name in self.removes],
        }
        return " ".join(f"{verb} {', '.join(each)}" for verb, each in clauses.items() if each), values


def parts_of_expression(expressions: Iterable[str], values: dict[str, Any]) -> dict[str, Any]:
    """The names and values that expressions speak of, as a call gives them."""
    text = " ".join(expressions)
    told: dict[str, Any] = {}
    if names := set(_NAMES.findall(text)):
        told["ExpressionAttributeNames"] = {f"#{name}": name for name in names}
    if used := set(_VALUES.findall(text)):
        told["ExpressionAttributeValues"] = {f":{name}": pack(values[name]) for name in used}
    return told


def pack(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, int | float):
        return {"N": repr(value)}
    if isinstance(value, bytes):
        return {"B": value}
    if isinstance(value, frozenset):
        return {"SS": sorted(value)}
    return {"S": value}


def unpack(item: Mapping[str, Mapping[str, Any]]) -> Item:
    return {name: _unpacked(*next(iter(value.items()))) for name, value in item.items()}


def _unpacked(kind: str, value: Any) -> Any:
    if kind == "N":
        return int(value) if value.lstrip("-").isdigit() else float(value)
    return frozenset(value) if kind == "SS" else value


PART, HASH = "part", "url_hash"
LINE, READY = "by_line", "by_ready_at"
INDEXES = {LINE: ("line", "place"), READY: ("waiting", "ready_at")}
"""Each index, and by what it finds: addresses in line, and hosts that are worth looking at."""

MOST_READ, MOST_DELETED, MOST_CHANGED = 100, 25, 90
"""Items in one call; a transaction may hold a few more than so many addresses."""
TRIES = 12
BUSY = ("TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded")


class Changed(Exception):
    """Something is not as it was when it was read: read it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a table is."""

    table: str
    region: str | None
    endpoint: str | None

    @classmethod
    def parse(cls, url: str) -> Place:
        """From ``dynamodb://table?region=…&endpoint=…``; who we are to it comes from the environment."""
        parts = urlsplit(url)
        asked = parse_qs(parts.query)
        if not parts.netloc or "@" in parts.netloc or parts.path.strip("/") or set(asked) - {"region", "endpoint"}:
            allowed = "it must look like dynamodb://table?region=eu-west-1, and credentials come from the environment"
            raise Misconfigured(f"the address of the DynamoDB frontier is wrong; {allowed}")
        region, endpoint = (asked.get(name, [None])[0] for name in ("region", "endpoint"))
        return cls(table=parts.netloc, region=region, endpoint=endpoint)


class Table:
    """Its methods block; any number of threads may call them."""

    def __init__(self, place: Place) -> None:
        self.name = f"dynamodb://{place.table}"
        self._place = place
        self._opening = Lock()
        self._client: Any = None

    def read(self, keys: Sequence[Key]) -> dict[Key, Item]:
        """Those items that are there, as they are now."""
        found: dict[Key, Item] = {}
        for start in range(0, len(keys), MOST_READ):
            wanted: Any = [_packed_key(key) for key in dict.fromkeys(keys[start : start + MOST_READ])]
            for wait in _waits():
                asked = {self._place.table: {"Keys": wanted, "ConsistentRead": True}}
                answer = self._call("batch_get_item", RequestItems=asked)
                found |= {key_of(item): item for item in map(unpack, answer["Responses"].get(self._place.table, ()))}
                wanted = answer.get("UnprocessedKeys", {}).get(self._place.table, {}).get("Keys")
                if not wanted:
                    break
                time.sleep(wait)
            else:
                raise FrontierDown(self.name, "it is asked too much")
        return found

    def query(self, condition: str, values: dict[str, Any], **options: Any) -> Iterator[Item]:
        """Items in the order of their sort key, read on as long as they are wanted."""
        asked = parts_of_expression([condition, options.get("FilterExpression", "")], values)
        if "IndexName" not in options:
            options["ConsistentRead"] = True
        while True:
            answer = self._call(
                "query", TableName=self._place.table, KeyConditionExpression=condition, **asked, **options
            )
            yield from map(unpack, answer["Items"])
            if "LastEvaluatedKey" not in answer:
                return
            options["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def change(self, changes: Iterable[Change]) -> None:
        """All of them, or none. Raises ``Changed`` where one may not be made any more."""
        items = [change.packed(self._place.table) for change in changes]
        for wait in _waits():
            try:
                self._call("transact_write_items", TransactItems=items)
            except _Cancelled as cancelled:
                if "ConditionalCheckFailed" in cancelled.codes:
                    raise Changed from None
                if not any(code in BUSY for code in cancelled.codes):
                    raise FrontierDown(self.name, f"it refused a change: {cancelled.codes}") from None
                time.sleep(wait)
            else:
                return
        raise FrontierDown(self.name, "too many change the same at once")

    def delete(self, keys: Sequence[Key]) -> None:
        for start in range(0, len(keys), MOST_DELETED):
            left: Any = [{"DeleteRequest": {"Key": _packed_key(key)}} for key in keys[start : start + MOST_DELETED]]
            for wait in _waits():
                answer = self._call("batch_write_item", RequestItems={self._place.table: left})
                left = answer.get("UnprocessedItems", {}).get(self._place.table)
                if not left:
                    break
                time.sleep(wait)
            else:
                raise FrontierDown(self.name, "it is asked too much")

    def _call(self, operation: str, **arguments: Any) -> Any:
        return self._translated(lambda: getattr(self._opened(), operation)(**arguments))

    def _translated(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except (NoCredentialsError, NoRegionError) as problem:
            raise Misconfigured(f"{self.name} cannot be opened: {problem}") from problem
        except ClientError as refusal:
            code = refusal.response.get("Error", {}).get("Code", "")
            if code == "TransactionCanceledException":
                reasons = refusal.response.get("CancellationReasons", ())
                raise _Cancelled([each.get("Code", "None") for each in reasons]) from refusal
            if code == "ConditionalCheckFailedException":
                raise Changed from refusal
            if code == "ResourceNotFoundException":
                raise FrontierLost(self.name, "there is no such table any more") from refusal
            raise FrontierDown(self.name, refusal) from refusal
        except BotoCoreError as problem:
            raise FrontierDown(self.name, problem) from problem

    def _opened(self) -> Any:
        """The client, once the table is known to be there."""
        with self._opening:
            if self._client is None:
                patience = Config(
                    connect_timeout=5,
                    read_timeout=15,
                    retries={"mode": "standard", "total_max_attempts": 3},
                    max_pool_connections=16,
                )
                place = {"region_name": self._place.region, "endpoint_url": self._place.endpoint}
                client = _session().client("dynamodb", config=patience, **place)
                self._have_table(client)
                self._client = client
            return self._client

    def _have_table(self, client: Any) -> None:
        try:
            told = client.describe_table(TableName=self._place.table)["Table"]
        except client.exceptions.ResourceNotFoundException:
            self._make_table(client)
            return
        keys = [each["AttributeName"] for each in told["KeySchema"]]
        indexes = {each["IndexName"] for each in told.get("GlobalSecondaryIndexes", ())}
        if keys != [PART, HASH] or not indexes >= set(INDEXES):
            needed = f"its keys must be {PART} and {HASH}, its indexes {' and '.join(INDEXES)}"
            raise Misconfigured(f"{self.name} is a table of something else; {needed}")

    def _make_table(self, client: Any) -> None:
        texts, numbers = (PART, HASH, *(names[0] for names in INDEXES.values())), [n[1] for n in INDEXES.values()]
        kinds = [(name, "S") for name in texts] + [(name, "N") for name in numbers]
        try:
            client.create_table(
                TableName=self._place.table,
                BillingMode="PAY_PER_REQUEST",
                AttributeDefinitions=[{"AttributeName": name, "AttributeType": kind} for name, kind in kinds],
                KeySchema=_schema((PART, HASH)),
                GlobalSecondaryIndexes=[
                    {"IndexName": name, "KeySchema": _schema(keys), "Projection": {"ProjectionType": "KEYS_ONLY"}}
                    for name, keys in INDEXES.items()
                ],
            )
        except client.exceptions.ResourceInUseException:
            pass  # another process makes it at this moment
        client.get_waiter("table_exists").wait(TableName=self._place.table, WaiterConfig={"Delay": 1})


class _Cancelled(Exception):
    """A transaction was not made; a code for each of its items says why."""

    def __init__(self, codes: Sequence[str]) -> None:
        super().__init__(", ".join(codes))
        self.codes = codes


@cache
def _session() -> Any:
    """One for all: to make one reads a hundred files."""
    return boto3.session.Session()


def _waits() -> Iterator[float]:
    """Seconds to wait before each further try: twice as long each time, and never as long as others do."""
    for step in range(TRIES):
        yield min(2.0, 0.02 * 2**step) * random.uniform(0.5, 1.0)


def _schema(keys: tuple[str, str]) -> list[dict[str, str]]:
    return [{"AttributeName": name, "KeyType": kind} for name, kind in zip(keys, ("HASH", "RANGE"), strict=True)]


def _packed_key(key: Key) -> dict[str, Any]:
    return {PART: pack(key[0]), HASH: pack(key[1])}


def key_of(item: Item) -> Key:
    return item[PART], item[HASH]
