"""Forms of either kind, whole or in pieces, and those that are not meant well."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import on_sqlite
from tests.scrapyd.calling import Client
from weft.operations.problems import RequestRefused
from weft.scrapyd_http.requests import MOST_FIELDS, FormFields, UrlencodedParser, query_of

PARTS = {"Content-Type": "multipart/form-data; boundary=cut"}


@settings(deadline=None)  # on a busy machine a moment may be long
@given(
    st.lists(st.tuples(st.binary(max_size=8), st.binary(max_size=20)), max_size=5),
    st.integers(min_value=1, max_value=7),
)
def test_a_form_reads_the_same_in_pieces_of_any_size(fields: list[tuple[bytes, bytes]], size: int) -> None:
    text = "&".join(f"{quote_plus(name)}={quote_plus(value)}" for name, value in fields).encode()
    found = FormFields()
    parser = UrlencodedParser(found)
    for start in range(0, len(text), size):
        parser.write(text[start : start + size])
    parser.finalize()
    expected: dict[bytes, list[bytes]] = {}
    for name, value in fields:
        expected.setdefault(name, []).append(value)
    assert found.values == expected == query_of(text)


def test_what_has_no_equals_sign_is_no_field_and_empty_values_are_kept() -> None:
    assert query_of(b"a&b=&=c&&d=%zz%") == {b"b": [b""], b"": [b"c"], b"d": [b"%zz%"]}


def test_an_egg_is_written_as_it_was_sent(tmp_path: Path) -> None:
    egg, file = bytes(range(256)) * 40, tmp_path / "egg"
    text, found = f"egg={quote_plus(egg)}&egg=second".encode(), FormFields(file, 20_000)
    parser = UrlencodedParser(found)
    for start in range(0, len(text), 17):
        parser.write(text[start : start + 17])
    parser.finalize()
    assert file.read_bytes() == egg
    assert (found.has_egg, found.values) == (True, {b"egg": [b"second"]})


@pytest.mark.parametrize("text", [b"&" * (MOST_FIELDS + 1), b"a=1&" * (MOST_FIELDS + 1)])
def test_a_form_of_too_many_pieces_is_refused(text: bytes) -> None:
    with pytest.raises(RequestRefused, match="at most"):
        query_of(text)


@on_sqlite
async def test_a_part_that_names_itself_twice_is_the_first_of_them(scrapyd: Client) -> None:
    twice = b'Content-Disposition: form-data; name="egg"\r\n' * 2
    body = b"--cut\r\n" + twice + b"\r\nno zip\r\n--cut--\r\n"
    answer = await scrapyd.send("/addversion.json?project=shop&version=1", body, headers=PARTS)
    assert answer.json["message"].startswith("egg is not a ZIP file")


@on_sqlite
async def test_parts_without_a_name_are_counted_too(scrapyd: Client) -> None:
    body = b"--cut\r\nA: b\r\n\r\n\r\n" * (MOST_FIELDS + 1) + b"--cut--\r\n"
    assert (await scrapyd.send("/schedule.json", body, headers=PARTS)).status == 413


@on_sqlite
async def test_a_body_that_never_says_its_length_is_cut_off(scrapyd: Client) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b"--cut\r\nA: b\r\n\r\n"
        for _ in range(64):
            yield b"x" * (1 << 17)

    answer = await scrapyd.send("/schedule.json", endless(), headers=PARTS)  # type: ignore[arg-type]
    assert (answer.status, answer.json["status"]) == (413, "error")
