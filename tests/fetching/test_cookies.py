from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cases import for_each
from weft.clock import Moment, seconds
from weft.fetching.cookies import LONGEST_HEADER, MOST_COOKIES, MOST_PER_DOMAIN, CookieJar
from weft.fetching.model import Exchange

SITE = "https://www.shop.example/a/b"


def answer(url: str, *cookies: str) -> Exchange:
    headers = [(b"set-cookie", cookie.encode()) for cookie in cookies]
    return Exchange(
        url=url,
        status=200,
        head=b"",
        headers=headers,
        raw_body=b"",
        body=b"",
        request=b"",
        address="",
        http="1.1",
        began_at=0,
        seconds=0,
    )


@for_each(
    ("cookie", "url", "sent"),
    [
        ("a=1", "https://www.shop.example/a/c", "a=1"),
        ("a=1", "https://www.shop.example/a", "a=1"),
        ("a=1", "https://www.shop.example/other", ""),
        ("a=1", "https://www.shop.example/ab", ""),
        ("a=1; Path=/", "https://www.shop.example/other", "a=1"),
        ("a=1; Path=/", "https://shop.example/", ""),
        ("a=1; Path=/", "https://x.www.shop.example/", ""),
        ("a=1; Path=/; Domain=shop.example", "https://other.shop.example/", "a=1"),
        ("a=1; Path=/; Domain=.SHOP.example", "https://shop.example/", "a=1"),
        ("a=1; Path=/; Domain=shop.example", "https://workshop.example/", ""),
        ("a=1; Path=/; Domain=example", "https://www.shop.example/", ""),
        ("a=1; Path=/; Domain=other.example", "https://other.example/", ""),
        ("a=1; Path=/; Domain=x.www.shop.example", "https://x.www.shop.example/", ""),
        ("a=1; Path=/; Secure", "https://www.shop.example/", "a=1"),
        ("a=1; Path=/; Secure", "http://www.shop.example/", ""),
        ("a=1; Path=/; Max-Age=0", "https://www.shop.example/", ""),
        ("a=1; Path=/; Max-Age=-5", "https://www.shop.example/", ""),
        ("a=1; Path=/; Max-Age=60", "https://www.shop.example/", "a=1"),
        ("a=1; Path=/; Expires=Wed, 21-Oct-1970 07:28:00 GMT", "https://www.shop.example/", ""),
        ("a=1; Path=/; Expires=Wed, 21 Oct 2099 07:28:00 GMT", "https://www.shop.example/", "a=1"),
        ("a=1; Path=/; Expires=nonsense", "https://www.shop.example/", "a=1"),
        ("=1; Path=/", "https://www.shop.example/", ""),
        ("a; Path=/", "https://www.shop.example/", ""),
        ("a=1\r\nX: y; Path=/", "https://www.shop.example/", ""),
        ("a=" + "x" * 5000 + "; Path=/", "https://www.shop.example/", ""),
        ("a=b=c; Path=/", "https://www.shop.example/", "a=b=c"),
    ],
)
def test_a_cookie_goes_only_where_it_belongs(cookie: str, url: str, sent: str) -> None:
    jar = CookieJar(lambda: seconds(1_000_000_000))
    jar.take(answer(SITE, cookie))
    assert jar.header(url) == sent


@pytest.mark.parametrize(
    "suffix",
    [
        *("uk", "co.uk", "com.br", "example", "github.io", "s3.amazonaws.com", "x.kobe.jp", "xn--p1ai"),
        *("github.io.", ".GITHUB.io"),
    ],
)
def test_nobody_sets_a_cookie_for_all_below_a_public_suffix(suffix: str) -> None:
    jar, named = CookieJar(), suffix.strip(".").lower()
    jar.take(answer(f"https://one.{named}/", f"a=1; Path=/; Domain={suffix}"))
    assert (jar.header(f"https://other.{named}/"), jar.header(f"https://one.{named}/"), len(jar)) == ("", "", 0)
    jar.take(answer(f"https://one.{named}/", f"a=1; Path=/; Domain=one.{named}"))
    assert jar.header(f"https://www.one.{named}/") == "a=1"


def test_a_host_that_is_a_public_suffix_has_cookies_for_itself_alone() -> None:
    jar = CookieJar()
    jar.take(answer("https://github.io/", "a=1; Path=/; Domain=github.io"))
    assert (jar.header("https://github.io/"), jar.header("https://a.github.io/")) == ("a=1", "")


def test_an_address_has_no_hosts_below_it() -> None:
    jar = CookieJar()
    jar.take(answer("http://1.2.3.4/", "a=1; Path=/; Domain=3.4"))
    assert (jar.header("http://9.9.3.4/"), len(jar)) == ("", 0)


def test_a_cookie_ends_when_its_time_has_come() -> None:
    time: list[Moment] = [seconds(1_000)]
    jar = CookieJar(lambda: time[0])
    jar.take(answer(SITE, "a=1; Path=/; Max-Age=60"))
    time[0] += seconds(59)
    assert jar.header(SITE) == "a=1"
    time[0] += seconds(2)
    assert jar.header(SITE) == ""


def test_a_cookie_is_replaced_by_one_of_its_name_and_the_longer_path_comes_first() -> None:
    jar = CookieJar()
    jar.take(answer(SITE, "a=1; Path=/", "a=2; Path=/", "b=3; Path=/a"))
    assert jar.header(SITE) == "b=3; a=2"


def test_a_jar_has_a_bottom() -> None:
    jar = CookieJar()
    for number in range(200):
        jar.take(answer(SITE, f"a{number}=1; Path=/"))
    assert len(jar) == MOST_PER_DOMAIN
    for number in range(4_000):
        jar.take(answer(f"https://h{number}.example/", "a=1"))
    assert len(jar) <= MOST_COOKIES


def test_however_many_cookies_a_site_sets_no_request_gets_longer_than_servers_take() -> None:
    jar = CookieJar()
    jar.take(answer(SITE, *(f"cookie{number}={'x' * 2_000}; Path=/" for number in range(MOST_PER_DOMAIN))))
    assert 4 * 2_000 < len(jar.header(SITE)) <= LONGEST_HEADER


def test_an_age_in_figures_of_another_script_is_none() -> None:
    jar = CookieJar()
    jar.take(replace(answer(SITE), headers=[(b"set-cookie", b"a=1; Path=/; Max-Age=\xb2")]))
    assert jar.header(SITE) == "a=1"
