from __future__ import annotations

import asyncio
import gzip
import socket
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientConnectorDNSError, web
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.test_utils import TestServer

from tests.cases import for_each
from tests.executing import PATIENCE_SECONDS, Log, attempt
from weft.adapters.executors._fetch import in_words
from weft.adapters.executors.http import HttpExecutor, seconds_to_wait
from weft.errors import Invalid
from weft.ports import Breaker, Ended

BOMB_BYTES = 200_000_000


class Site:
    """A server that answers as its path says, and remembers what it was asked."""

    def __init__(self) -> None:
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.status = 200
        self.headers: dict[str, str] = {}
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()
        self.go_on.set()
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.bodies.append(await request.read())
        self.asked.set()
        await self.go_on.wait()
        return PAGES.get(request.path, plain)(self)


def plain(site: Site) -> web.Response:
    return web.Response(status=site.status, headers=site.headers, text="price: 12 €")


def page(data: bytes, **headers: str) -> Callable[[Site], web.Response]:
    return lambda site: web.Response(body=data, headers={name.replace("_", "-"): headers[name] for name in headers})


def redirect(where: str) -> Callable[[Site], web.Response]:
    return lambda site: web.Response(status=302, headers={"Location": where})


PAGES: dict[str, Callable[[Site], web.Response]] = {
    "/many-letters": page(b"a" * 50 + b"!"),
    "/gzip": page(gzip.compress(b"unfolded"), Content_Encoding="gzip"),
    "/deflate": page(zlib.compress(b"unfolded"), Content_Encoding="deflate"),
    "/bare-deflate": page(zlib.compress(b"unfolded", wbits=-15), Content_Encoding="deflate"),
    "/broken-gzip": page(b"no gzip at all", Content_Encoding="gzip"),
    "/latin": page("grün".encode("latin-1"), Content_Type="text/plain; charset=latin-1"),
    "/strange": page("grün".encode(), Content_Type="text/plain; charset=klingon"),
    "/large": page(b"x" * 100_000 + b"needle"),
    "/there": redirect("/here"),
    "/round": redirect("/round"),
    "/file": redirect("file:///etc/passwd"),
    "/elsewhere": lambda site: web.Response(status=302, headers=site.headers),
}


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", site.answer)
    async with TestServer(app, host="127.0.0.1") as server:
        site.url = str(server.make_url("")).rstrip("/")
        yield site
        site.go_on.set()


@pytest.fixture
def nobody() -> str:
    """The address of a port on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def fetch(executor: HttpExecutor | None = None, /, project: str = "shop", **spec: Any) -> Ended:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await (executor or HttpExecutor()).execute(attempt(Path("unused"), spec, project=project))


async def test_an_answer_as_expected_is_a_success_with_its_measures(site: Site) -> None:
    ended = await fetch(url=f"{site.url}/page?a=1")
    assert ended.outcome == "succeeded"
    assert ended.result is not None
    assert set(ended.result) == {"status", "bytes", "seconds", "url"}
    assert (ended.result["status"], ended.result["bytes"], ended.result["url"]) == (200, 13, f"{site.url}/page?a=1")
    assert site.requests[0].method == "GET"


async def test_each_attempt_writes_one_line_without_passwords(site: Site, nobody: str) -> None:
    log = Log()
    for url in (f"{site.url}/page", nobody):
        with_password = url.replace("://", "://me:secret@")
        await HttpExecutor().execute(attempt(Path("unused"), {"url": with_password}, log=log))
    first, second = log.data.decode().splitlines()
    assert first.startswith(f"GET {site.url}/page: 200, 13 bytes, ")
    assert second == f"GET {nobody}: connection refused"


async def test_a_password_in_the_address_is_used_but_not_kept(site: Site) -> None:
    ended = await fetch(url=site.url.replace("://", "://me:secret@") + "/")
    assert site.requests[0].headers["Authorization"].startswith("Basic ")
    assert ended.result is not None
    assert ended.result["url"] == f"{site.url}/"


async def test_a_request_carries_its_trace_and_its_key(site: Site) -> None:
    await fetch(url=site.url)
    headers = site.requests[0].headers
    assert headers["Idempotency-Key"] == "12:3"
    assert headers["traceparent"] == "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert headers["User-Agent"].startswith("weft/")


async def test_headers_of_the_spec_stand(site: Site) -> None:
    own = {"idempotency-key": "mine", "Traceparent": "own", "X-Colour": "red", "user-agent": "me"}
    await fetch(url=site.url, headers=own)
    headers = site.requests[0].headers
    assert [headers.getall(name) for name in own] == [["mine"], ["own"], ["red"], ["me"]]


async def test_a_body_is_sent_as_it_is(site: Site) -> None:
    await fetch(url=site.url, method="put", body="grün")
    assert (site.requests[0].method, site.bodies[0]) == ("PUT", "grün".encode())


async def test_json_is_sent_as_json(site: Site) -> None:
    await fetch(url=site.url, method="POST", json={"a": [1, None]})
    assert (site.requests[0].content_type, site.bodies[0]) == ("application/json", b'{"a": [1, null]}')


@pytest.mark.parametrize(
    ("status", "expect", "reason"),
    [
        (204, None, ""),
        (500, None, "status 500, expected 2xx"),
        (404, 404, ""),
        (200, 404, "status 200, expected 404"),
        (301, [200, "3xx"], ""),
        (404, [200, "3XX"], "status 404, expected 200 or 3xx"),
    ],
)
async def test_the_status_must_be_as_expected(site: Site, status: int, expect: Any, reason: str) -> None:
    site.status = status
    ended = await fetch(url=site.url, expect_status=expect)
    assert (ended.outcome, ended.reason) == ("failed" if reason else "succeeded", reason)
    assert ended.result is not None
    assert ended.result["status"] == status


@pytest.mark.parametrize(
    ("expectation", "reason"),
    [
        ({"expect_body": "12 €"}, ""),
        ({"expect_body": "13 €"}, "the body does not contain '13 €'"),
        ({"expect_body_matches": r"price: \d+ €$"}, ""),
        ({"expect_body_matches": r"^\d"}, r"the body does not match '^\\d'"),
    ],
)
async def test_the_body_must_be_as_expected(site: Site, expectation: dict[str, str], reason: str) -> None:
    ended = await fetch(url=site.url, **expectation)
    assert (ended.outcome, ended.reason) == ("failed" if reason else "succeeded", reason)


async def test_no_pattern_takes_long_whatever_the_body_is(site: Site) -> None:
    ended = await fetch(url=f"{site.url}/many-letters", expect_body_matches="(a+)+$")
    assert (ended.outcome, ended.reason) == ("failed", "the body does not match '(a+)+$'")
    with pytest.raises(Invalid, match=r"expect_body_matches is '\(\?=a\)'; it must be a regular expression without"):
        HttpExecutor().check({"url": site.url, "expect_body_matches": "(?=a)"})


@pytest.mark.parametrize("path", ["/gzip", "/deflate", "/bare-deflate"])
async def test_a_compressed_body_is_unfolded(site: Site, path: str) -> None:
    ended = await fetch(url=site.url + path, expect_body="unfolded")
    assert (ended.outcome, ended.result and ended.result["bytes"]) == ("succeeded", 8)


@pytest.mark.parametrize("path", ["/latin", "/strange"])
async def test_the_body_is_read_in_its_charset_or_else_as_utf8(site: Site, path: str) -> None:
    assert (await fetch(url=site.url + path, expect_body="grün")).outcome == "succeeded"


async def test_of_a_large_body_only_the_beginning_is_read(site: Site) -> None:
    ended = await fetch(url=f"{site.url}/large", max_body_bytes=1000, expect_body="needle")
    assert ended.reason == "the body does not contain 'needle' in its first 1000 bytes"
    assert ended.result is not None
    assert (ended.result["bytes"], ended.result["truncated"]) == (1000, True)


async def test_a_body_of_exactly_the_limit_is_not_truncated(site: Site) -> None:
    ended = await fetch(url=f"{site.url}/large", max_body_bytes=100_006, expect_body="needle")
    assert ended.outcome == "succeeded"
    assert ended.result is not None
    assert "truncated" not in ended.result


async def test_a_small_answer_that_unfolds_to_much_takes_little_memory(site: Site) -> None:
    await fetch(url=site.url)
    PAGES["/bomb"] = page(gzip.compress(bytes(BOMB_BYTES), 1), Content_Encoding="gzip")
    tracemalloc.start()
    try:
        ended = await fetch(url=f"{site.url}/bomb")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert ended.result is not None
    assert ended.result["bytes"] == 1_048_576
    assert peak < 20_000_000


async def test_redirects_are_followed_to_the_final_address(site: Site) -> None:
    ended = await fetch(url=f"{site.url}/there")
    assert ended.result is not None
    assert ended.result["url"] == f"{site.url}/here"


async def test_a_secret_goes_to_the_server_of_the_task_and_to_none_that_it_redirects_to(site: Site) -> None:
    async def away(request: web.Request) -> web.Response:
        return web.Response(status=int(request.path[1:]), headers={"Location": f"{site.url}/here"})

    gate = web.Application()
    gate.router.add_route("*", "/{path:.*}", away)
    headers = {"X-Shop": "key hunter22", "X-Api-Key": "by its name", "Authorization": "Bearer x", "X-Colour": "red"}
    async with TestServer(gate, host="127.0.0.1") as other:

        async def sent(status: int, **more: str) -> Ended:
            spec = {"url": str(other.make_url(f"/{status}")), "method": "POST", "headers": headers, **more}
            return await HttpExecutor().execute(attempt(Path("unused"), spec, secrets=("hunter22",)))

        for status in (302, 307):
            assert (await sent(status, body="nothing secret")).outcome == "succeeded"
            assert site.requests[-1].headers["X-Colour"] == "red"
            assert not {"X-Shop", "X-Api-Key", "Authorization"} & site.requests[-1].headers.keys()
        assert (await sent(302, body="hunter22")).outcome == "succeeded"
        assert (site.requests[-1].method, site.bodies[-1]) == ("GET", b"")
        stopped = await sent(308, body="the key is hunter22")
        assert stopped == Ended(
            outcome="failed",
            reason=f"the answer redirects to {site.url}, where the secret in the body may not go",
        )
        assert len(site.requests) == 3
    spec = {"url": f"{site.url}/there", "headers": headers}
    await HttpExecutor().execute(attempt(Path("unused"), spec, secrets=("hunter22",)))
    assert site.requests[-1].headers["X-Shop"] == "key hunter22"


@for_each("name", ["Host", "content-length", "Transfer-Encoding", "Connection", "Upgrade"])
def test_headers_that_make_another_request_are_refused(name: str) -> None:
    with pytest.raises(Invalid, match=f"a name in http.headers is '{name}'; weft sets it itself"):
        HttpExecutor().check({"url": "https://shop.example/", "headers": {"X-Colour": "red", name: "5"}})


async def test_redirects_are_not_followed_where_the_spec_says_so(site: Site) -> None:
    ended = await fetch(url=f"{site.url}/there", follow_redirects=False)
    assert (ended.reason, len(site.requests)) == ("status 302, expected 2xx", 1)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/round", "more than 10 redirects"),
        ("/file", "the answer redirects to file:///etc/passwd, which is no http address"),
        ("/broken-gzip", "the answer could not be decompressed"),
    ],
)
async def test_an_answer_that_makes_no_sense_is_a_failure_in_words(site: Site, path: str, reason: str) -> None:
    assert await fetch(url=site.url + path) == Ended(outcome="failed", reason=reason)


async def test_no_server_is_a_failure_in_words(nobody: str) -> None:
    assert await fetch(url=nobody) == Ended(outcome="failed", reason="connection refused")
    localhost = nobody.replace("127.0.0.1", "localhost")
    assert await fetch(url=localhost) == Ended(outcome="failed", reason="connection refused")


def test_a_host_without_an_address_is_told_in_words() -> None:
    # The library's own error, made here: a look-up would leave the machine.
    key = ConnectionKey("nowhere.invalid", 80, False, True, None, None, None)
    assert in_words(ClientConnectorDNSError(key, OSError(-2, "not known"))) == "there is no host nowhere.invalid"


async def test_silence_is_a_failure_after_the_deadline(site: Site) -> None:
    site.go_on.clear()
    assert await fetch(url=site.url, timeout_seconds=0.2) == Ended(outcome="failed", reason="no answer within 0.2 s")


@pytest.mark.parametrize(
    ("sends", "reason"),
    [
        (b"", "the connection was closed before an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", "the answer was cut off"),
    ],
)
async def test_an_answer_that_breaks_off_is_a_failure_in_words(sends: bytes, reason: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sends)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        ended = await fetch(url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    assert ended == Ended(outcome="failed", reason=reason)


async def test_a_body_that_trickles_ends_at_the_deadline() -> None:
    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        reading = asyncio.create_task(reader.read())
        try:
            while not reading.done() or not reader.at_eof():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.02)
        except ConnectionError:
            pass
        finally:
            reading.cancel()
            writer.close()

    async with await asyncio.start_server(trickle, "127.0.0.1", 0) as server:
        ended = await fetch(url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", timeout_seconds=0.3)
    assert ended.reason == "no answer within 0.3 s"


@pytest.mark.parametrize("status", [429, 503])
async def test_a_server_that_asks_to_wait_is_heard(site: Site, status: int) -> None:
    site.status, site.headers = status, {"Retry-After": "120"}
    assert (await fetch(url=site.url)).retry_after_seconds == 120


async def test_retry_after_of_another_status_says_nothing(site: Site) -> None:
    site.status, site.headers = 500, {"Retry-After": "120"}
    assert (await fetch(url=site.url)).retry_after_seconds is None


@for_each(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("soon", None),
        ("-1", None),
        ("٣", None),
        ("7", 7.0),
        ("999999999", 86_400.0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 90.0),
        ("Thu, 01 Jan 1970 00:00:01 GMT", 0.0),
    ],
)
def test_retry_after_is_a_number_or_a_date(header: str | None, seconds: float | None) -> None:
    assert seconds_to_wait(header, now=lambda: 10_000_000) == seconds


async def test_a_target_that_fails_five_times_is_left_alone_then_probed(site: Site) -> None:
    time = Time()
    executor = HttpExecutor(time)
    site.status = 500
    for _ in range(5):
        assert (await fetch(executor, url=f"{site.url}/a")).outcome == "failed"
    assert await fetch(executor, url=f"{site.url}/b") == Ended(
        outcome="postponed", reason=f"circuit breaker for {site.url} is open after 5 failures", retry_after_seconds=30.0
    )
    assert len(site.requests) == 5
    assert list(executor.breakers()) == [Breaker(site.url, "open", 5, 30.0, "shop")]
    time.now += 30
    site.status = 200
    assert (await fetch(executor, url=site.url)).outcome == "succeeded"
    assert not executor.breakers()


async def test_while_a_probe_is_under_way_others_are_postponed(site: Site) -> None:
    time = Time()
    executor = HttpExecutor(time)
    site.status = 500
    for _ in range(5):
        await fetch(executor, url=site.url)
    time.now += 30
    site.go_on.clear()
    site.asked.clear()
    probe = asyncio.create_task(fetch(executor, url=site.url))
    await site.asked.wait()
    assert (await fetch(executor, url=site.url)).outcome == "postponed"
    assert len(site.requests) == 6
    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe
    site.go_on.set()
    site.status = 200
    assert (await fetch(executor, url=site.url)).outcome == "succeeded"


async def test_a_redirect_takes_no_cookie_to_a_neighbour_below_a_public_suffix(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_up, port = socket.getaddrinfo, site.url.rpartition(":")[2]

    def github(host: Any, *rest: Any, **more: Any) -> Any:
        return look_up("127.0.0.1" if str(host).endswith(".github.io") else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", github)
    site.headers = {"Location": f"http://b.github.io:{port}/there", "Set-Cookie": "at=1; Path=/; Domain=github.io"}
    site.status = 302
    await fetch(url=f"http://a.github.io:{port}/from")
    assert [(asked.host.partition(":")[0], asked.headers.get("cookie")) for asked in site.requests[:2]] == [
        ("a.github.io", None),
        ("b.github.io", None),
    ]


async def test_connections_refused_open_the_breaker(nobody: str) -> None:
    executor = HttpExecutor(Time())
    outcomes = [(await fetch(executor, url=nobody)).outcome for _ in range(6)]
    assert outcomes == ["failed"] * 5 + ["postponed"]


async def test_failures_of_one_project_hold_back_no_run_of_another(site: Site) -> None:
    executor = HttpExecutor(Time())
    site.status = 500
    outcomes = [(await fetch(executor, "loud", url=site.url)).outcome for _ in range(6)]
    assert outcomes == ["failed"] * 5 + ["postponed"]
    site.status = 200
    assert (await fetch(executor, "quiet", url=site.url)).outcome == "succeeded"
    assert list(executor.breakers()) == [Breaker(site.url, "open", 5, 30.0, "loud")]


async def test_a_redirect_to_a_host_that_fails_counts_for_that_host(site: Site, nobody: str) -> None:
    executor = HttpExecutor(Time())
    site.status = 302
    for where in ("http://10.0.0.1:81/refused", f"{nobody}/closed"):
        site.headers = {"Location": where}
        assert [(await fetch(executor, url=site.url)).outcome for _ in range(6)] == ["failed"] * 6
        assert (await fetch(executor, url=where)).outcome == "postponed"
    shown = [Breaker(target, "open", 5, 30.0, "shop") for target in ("http://10.0.0.1:81", nobody)]
    assert list(executor.breakers()) == shown
    site.status = 200
    assert (await fetch(executor, url=site.url)).outcome == "succeeded"


async def test_a_host_that_works_again_behind_a_redirect_is_asked_again(site: Site) -> None:
    time = Time()
    executor = HttpExecutor(time)
    there = site.url.replace("127.0.0.1", "localhost")
    site.status = 500
    for _ in range(5):
        await fetch(executor, url=there)
    site.status, time.now = 200, time.now + 30
    site.headers = {"Location": there}
    assert (await fetch(executor, url=f"{site.url}/elsewhere")).outcome == "succeeded"
    assert not executor.breakers()


@pytest.mark.parametrize("path", ["/round", "/file"])
async def test_a_server_whose_redirects_lead_nowhere_has_answered(site: Site, path: str) -> None:
    executor = HttpExecutor(Time())
    assert [(await fetch(executor, url=f"{site.url}{path}")).outcome for _ in range(6)] == ["failed"] * 6
    assert not executor.breakers()


async def test_deadlines_missed_open_the_breaker(site: Site) -> None:
    executor = HttpExecutor(Time())
    site.go_on.clear()
    outcomes = [(await fetch(executor, url=site.url, timeout_seconds=0.05)).outcome for _ in range(6)]
    assert outcomes == ["failed"] * 5 + ["postponed"]


@pytest.mark.parametrize(
    ("status", "expectation"),
    [
        (404, {}),
        (429, {}),
        (200, {"expect_body": "absent"}),
        (200, {"expect_status": 201}),
        (503, {"expect_status": 503}),
    ],
)
async def test_a_server_that_answers_does_not_open_the_breaker(
    site: Site, status: int, expectation: dict[str, Any]
) -> None:
    executor = HttpExecutor(Time())
    site.status = status
    for _ in range(10):
        assert (await fetch(executor, url=site.url, **expectation)).outcome != "postponed"
    assert not executor.breakers()


async def test_one_target_is_one_server_whatever_the_page(nobody: str) -> None:
    executor = HttpExecutor(Time())
    for path in ("/", "/a?b", "/c#d"):
        await fetch(executor, url=nobody + path)
    await fetch(executor, url=nobody.replace("http", "HTTP").replace("://", "://me:secret@"))
    assert list(executor.breakers()) == [Breaker(nobody, "closed", 4, project="shop")]


def test_a_worker_at_rest_does_not_hold_the_http_library() -> None:
    program = """
import sys
from weft.adapters.registry import executor_kinds, open_executor
executors = [open_executor(kind) for kind in executor_kinds()]
open_executor("http").check({"url": "http://example.org/", "expect_body_matches": "x"})
sys.exit("aiohttp" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@for_each(
    ("spec", "says"),
    [
        ({"url": None}, "http.url is None; it must be an address"),
        ({"url": "example.org"}, "http.url is 'example.org'"),
        ({"url": "file:///etc/passwd"}, "http.url is "),
        ({"url": "http://"}, "http.url is "),
        ({"url": "http://a b/"}, "http.url is "),
        ({"url": "http://a:99999/"}, "http.url is "),
        ({"url": "http://[::1/"}, "http.url is "),
        ({"method": "GE T"}, "http.method is 'GE T'"),
        ({"headers": {"A": 1}}, "http.headers is {'A': 1}"),
        ({"headers": {"A B": "1"}}, "a name in http.headers is 'A B'"),
        ({"headers": {"A": "1\r\nB: 2"}}, "http.headers.A is "),
        ({"body": 1}, "http.body is 1"),
        ({"body": "a", "json": 1}, "http.json is 1; only one of body and json may be given"),
        ({"json": float("nan")}, "http.json is nan"),
        ({"expect_status": 99}, "http.expect_status is 99"),
        ({"expect_status": "6xx"}, "http.expect_status is '6xx'"),
        ({"expect_status": []}, "http.expect_status is []"),
        ({"expect_status": True}, "http.expect_status is True"),
        ({"expect_body": 1}, "http.expect_body is 1"),
        ({"expect_body_matches": "("}, "http.expect_body_matches is '('"),
        ({"expect_body_matches": "x" * 1001}, "http.expect_body_matches is "),
        ({"expect_body": "a", "expect_body_matches": "a"}, "http.expect_body_matches is 'a'; only one of"),
        ({"timeout_seconds": 0}, "http.timeout_seconds is 0; it must be a number from 0.001 to 86400"),
        ({"timeout_seconds": True}, "http.timeout_seconds is True"),
        ({"follow_redirects": "no"}, "http.follow_redirects is 'no'; it must be true or false"),
        ({"max_body_bytes": 1.5}, "http.max_body_bytes is 1.5; it must be a whole number"),
    ],
)
async def test_a_wrong_spec_is_refused_in_words(spec: dict[str, Any], says: str) -> None:
    whole = {"url": "http://127.0.0.1/", **spec}
    with pytest.raises(Invalid) as refused:
        HttpExecutor().check(whole)
    assert str(refused.value).startswith(says)
    assert await fetch(**whole) == Ended(outcome="failed", reason=str(refused.value))


def test_a_refused_address_does_not_show_its_password() -> None:
    with pytest.raises(Invalid) as refused:
        HttpExecutor().check({"url": "ftp://me:secret@example.org/"})
    assert "secret" not in str(refused.value)
