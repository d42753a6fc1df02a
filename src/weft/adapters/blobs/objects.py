"""Blobs as objects in a bucket of S3, or of anything that speaks as S3 does. A key is an object's name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from weft.adapters.blobs.files import SEGMENT, checked
from weft.errors import BlobsDown, Invalid

T = TypeVar("T")

SHAPE = "it must be s3://bucket/prefix, with ?endpoint=https://…&region=… where the store is not Amazon's"
REGION = "us-east-1"
"""What a store that knows no regions is told."""
NAMES = {"endpoint", "region"}
ANSWER_SECONDS, CONNECT_SECONDS = 60, 5
CALLS_AT_ONCE = 16
PART, PARTS_AT_ONCE = 8 << 20, 4
"""Bytes of a part of a large file, and how many are on their way together."""
RETRY_SECONDS = 10
"""How long a call is made again; each of them may be made twice without harm."""


class ObjectBlobs:
    """Opened with ``s3://bucket/prefix?endpoint=…&region=…``.

    Its credentials are in the URL (``s3://KEY:SECRET@bucket``), or they come from where S3's own tools find them: the
    AWS_* variables, the role of the machine or of its pod. Plain HTTP is spoken where the URL says http.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._name = f"s3://{parts.hostname or ''}"
        self._threads = ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="blobs")
        self._store = S3Store(_bucket(parts), prefix=_prefix(parts), **_options(parts))

    async def put(self, key: str, data: bytes) -> None:
        checked(key)
        await self._in_thread(lambda: self._store.put(key, data))

    async def put_file(self, key: str, path: Path) -> None:
        """In parts, several at a time: the store keeps none of them unless it has all."""
        checked(key)
        await self._in_thread(lambda: self._store.put(key, path, chunk_size=PART, max_concurrency=PARTS_AT_ONCE))

    async def get(self, key: str) -> bytes | None:
        checked(key)
        return await self._in_thread(lambda: self._get(key))

    async def get_part(self, key: str, start: int, length: int) -> bytes | None:
        checked(key)
        return await self._in_thread(lambda: self._get_part(key, start, length))

    async def delete(self, key: str) -> None:
        checked(key)
        await self._in_thread(lambda: self._store.delete(key))

    async def keys(self, folder: str) -> list[str]:
        return list(await self.sizes(folder))

    async def sizes(self, folder: str) -> dict[str, int]:
        checked(folder)
        return await self._in_thread(
            lambda: dict(sorted((each["path"], each["size"]) for page in self._store.list(folder) for each in page))
        )

    def _get(self, key: str) -> bytes | None:
        try:
            return bytes(self._store.get(key).bytes())
        except FileNotFoundError as absent:
            if "NoSuchBucket" in str(absent):
                raise
            return None

    def _get_part(self, key: str, start: int, length: int) -> bytes | None:
        try:
            size = self._store.head(key)["size"]
            end = min(size, start + length)
            return bytes(self._store.get_range(key, start=start, end=end)) if start < end else b""
        except FileNotFoundError as absent:
            if "NoSuchBucket" in str(absent):
                raise
            return None

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Do it in a thread of ours. The library's own would touch Python's objects while the process ends."""
        async with self._edge():
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    @asynccontextmanager
    async def _edge(self) -> AsyncIterator[None]:
        """Where the library's errors become weft's."""
        try:
            yield
        except (PermissionDeniedError, UnauthenticatedError, PermissionError) as refused:
            raise BlobsDown(self._name, "the credentials are not accepted") from refused
        except (BaseError, OSError) as problem:
            raise BlobsDown(self._name, _why(problem)) from problem


def _bucket(parts: SplitResult) -> str:
    if not parts.hostname or not SEGMENT.fullmatch(parts.hostname):
        raise Invalid("the bucket of the blobs URL", parts.hostname or "", SHAPE)
    return parts.hostname


def _prefix(parts: SplitResult) -> str | None:
    prefix = parts.path.strip("/")
    return checked(prefix) if prefix else None


def _options(parts: SplitResult) -> dict[str, Any]:
    told = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(told.keys() - NAMES):
        raise Invalid("the blobs URL", f"?{unknown[0]}=…", SHAPE)
    endpoint = told.get("endpoint", "")
    if endpoint and urlsplit(endpoint).scheme not in ("http", "https"):
        raise Invalid("the endpoint of the blobs URL", endpoint, SHAPE)
    options: dict[str, Any] = {
        "client_options": {
            "allow_http": endpoint.startswith("http:"),
            "timeout": timedelta(seconds=ANSWER_SECONDS),
            "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
        },
        "retry_config": {"max_retries": 4, "retry_timeout": timedelta(seconds=RETRY_SECONDS)},
    }
    if endpoint:
        options |= {"endpoint": endpoint, "region": REGION}
    if region := told.get("region"):
        options["region"] = region
    if parts.username:
        options["credential_provider"] = _credentials(unquote(parts.username), unquote(parts.password or ""))
    return options


def _credentials(key_id: str, secret: str) -> Callable[[], dict[str, Any]]:
    """These and nothing else: the library would send the token of the AWS_* variables along, wherever that is."""
    return lambda: {"access_key_id": key_id, "secret_access_key": secret, "token": None, "expires_at": None}


def _why(problem: BaseException) -> str:
    """The store's own code where it gave one, else the last of the library's words on it."""
    text = str(problem).partition("\n\nDebug source")[0]
    if "<Code>" in text:
        code = text.partition("<Code>")[2].partition("</Code>")[0]
        return {"NoSuchBucket": "there is no such bucket"}.get(code, code)
    return " ".join(text.split()).rpartition(" - ")[2] or type(problem).__name__
