"""Items as JSON: what Scrapy's own exporter would write, and a clear word on what cannot be written."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from itemadapter import ItemAdapter, is_item
from scrapy.utils.serialize import ScrapyJSONEncoder

_encode = ScrapyJSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_serializers: dict[type, dict[str, Callable[[Any], Any]]] = {}


class NotJSON(Exception):
    """A spider yielded something that JSON cannot say."""


def item_json(item: Any) -> bytes:
    """The item as one JSON object, without a line break."""
    try:
        text = text_of(item if type(item) is dict else fields_of(item))
    except MemoryError:
        raise
    except Exception as error:  # the item's own code is asked for its fields: it may raise anything
        raise NotJSON(f"{type(error).__name__}: {error}") from error
    try:
        return text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, as broken pages have them
        return text.encode("utf-8", "replace")


def fields_of(item: Any) -> Any:
    """The fields of an item of any kind that Scrapy knows, through the serializers that its fields declare."""
    if not is_item(item):
        raise TypeError("it is not an item: a spider may yield dicts and items")
    adapter = ItemAdapter(item)
    shown = dict(adapter)
    for name, serializer in serializers_of(adapter).items():
        if name in shown:
            shown[name] = serializer(shown[name])
    return shown


def serializers_of(adapter: ItemAdapter) -> dict[str, Callable[[Any], Any]]:
    kind = type(adapter.item)
    if kind not in _serializers:
        declared = {name: adapter.get_field_meta(name).get("serializer") for name in adapter.field_names()}
        _serializers[kind] = {name: serializer for name, serializer in declared.items() if serializer is not None}
    return _serializers[kind]


def text_of(fields: Any) -> str:
    try:
        return str(_encode(fields))
    except ValueError:  # nan or an infinity, which JSON has not; or an item inside itself, which raises again
        return str(_encode(without_nan(json.loads(ScrapyJSONEncoder().encode(fields)))))


def without_nan(value: Any) -> Any:
    """The same with null where a number is not a number, or has no end."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_nan(inner) for inner in value]
    return value
