from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path

import pytest

from tests.cases import for_each
from tests.executing import attempt
from weft.adapters import executors
from weft.adapters.registry import BLOBS, BROKERS, executor_kinds, open_broker, open_executor
from weft.errors import AdapterMissing, Invalid


@for_each("where", sorted({*BROKERS.values(), *BLOBS.values()}))
def test_every_listed_adapter_has_its_file(where: str) -> None:
    assert importlib.util.find_spec(where.partition(":")[0]) is not None


@pytest.mark.parametrize("url", ["", "redis", "kafka://example.org", "Redis://example.org"])
def test_an_unknown_broker_is_refused_with_those_that_exist(url: str) -> None:
    with pytest.raises(Invalid) as refused:
        open_broker(url)
    assert str(refused.value) == (
        f"the broker URL is {url!r}; it must begin with memory:, polling:, local:, "
        "postgresql:, redis:, rediss:, amqp: or amqps:"
    )


def test_a_missing_library_is_told_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BROKERS, "amqp", "a_library_that_is_not_installed.brokers:Broker")
    with pytest.raises(
        AdapterMissing, match=r"^the amqp broker needs an extra package: pip install 'weft\[rabbitmq\]'$"
    ):
        open_broker("amqp://example.org")


def test_a_fault_of_weft_itself_is_not_taken_for_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BROKERS, "amqp", "weft.adapters.brokers.mistyped:Broker")
    with pytest.raises(ModuleNotFoundError):
        open_broker("amqp://example.org")


def test_a_file_is_a_kind(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("kinds")
    (folder / "greeting.py").write_text("EXECUTOR = lambda: 'an executor'")
    (folder / "_shared.py").write_text("")
    (folder / "notes.txt").write_text("")
    monkeypatch.setattr(executors, "__path__", [str(folder)])
    assert executor_kinds() == ["greeting"]
    assert str(open_executor("greeting")) == "an executor"


async def test_the_kind_in_the_how_to_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/add-a-kind.md").read_text()
    (tmp_path / "tcp.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    monkeypatch.setattr(executors, "__path__", [*executors.__path__, str(tmp_path)][::-1])
    kind = open_executor("tcp")
    with pytest.raises(Invalid, match=r"^tcp.port is 'x'; it must be a whole number from 1 to 65535$"):
        kind.check({"port": "x"})
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert (await kind.execute(attempt(tmp_path, {"port": port}))).result == {"port": port}
    assert (await kind.execute(attempt(tmp_path, {"port": port}))).outcome == "failed"
