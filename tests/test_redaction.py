"""What must stay secret is masked, in every form and wherever a text is cut; what is not secret is left alone."""

from __future__ import annotations

import base64
import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import for_each
from tests.growing import TOO_MUCH, growth
from weft import logging_config
from weft.redaction import MASK, MaskedStream, Values, in_process, is_secret, redacted, redacted_tree

CANARY = 'k4n"ry/ö +=\\'


@pytest.fixture
def known() -> Iterator[str]:
    in_process.add([CANARY])
    yield CANARY
    in_process.drop([CANARY])


@pytest.mark.parametrize(
    "seen", [CANARY, json.dumps(CANARY), quote(CANARY, safe=""), base64.b64encode(CANARY.encode()).decode()]
)
def test_a_known_value_is_masked_in_every_form(known: str, seen: str) -> None:
    assert redacted(f"before {seen} after") in (f"before {MASK} after", f'before "{MASK}" after')
    assert redacted_tree({"a": [{"b": f"x {seen}"}]})["a"][0]["b"].strip('"x ') == MASK


@pytest.mark.parametrize("value", ["hunter22", "ab?cd>e", "päss/wörd~1", "0123456789abcdef0"])
@pytest.mark.parametrize(
    "around", [("", ""), ("", "\n"), ("ada:", ""), ("u:", "\n"), ('{"key": "', '"}'), ("abc:", "xy")]
)
def test_a_value_is_masked_in_base64_whatever_is_around_it(value: str, around: tuple[str, str]) -> None:
    """At most the letters that it shares with its neighbours are left, with four bits of its first and last byte."""
    whole = f"{around[0]}{value}{around[1]}".encode()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for text in (letters := encode(whole).decode(), letters.rstrip("="), quote(letters, safe="")):
            masked = Values([value]).text(f"sent {text}.")
            assert masked.startswith("sent ")
            left = masked.replace("%3D", "").replace("=", "")
            alone = base64.b64encode(f"{around[0]}{around[1]}".encode()).decode().rstrip("=")
            assert MASK in masked
            assert len(left) <= len("sent .") + len(MASK) + len(alone) + 3


@pytest.mark.parametrize("encode", [quote, lambda text: quote(text, safe=""), lambda text: quote(text, safe="!'()*")])
@pytest.mark.parametrize("lower", [False, True])
def test_a_value_is_masked_as_every_browser_and_library_encodes_it_in_a_url(encode: Any, lower: bool) -> None:
    told = encode("it's (1/2)~ü&=")
    told = re.sub("%..", lambda found: found[0].lower(), told) if lower else told
    assert Values(["it's (1/2)~ü&="]).text(f"?q={told}&page=2") == f"?q={MASK}&page=2"


def test_each_line_of_a_long_value_is_masked() -> None:
    values = Values(["-----BEGIN-----\nMIIEvQIBADANBg\nqhkiG9w0BAQEFA\n"])
    assert values.text("line: qhkiG9w0BAQEFA.") == f"line: {MASK}."


def test_a_value_that_was_cut_off_is_masked() -> None:
    values = Values(["correct horse battery staple"])
    assert values.text("it said 'correct horse bat...") == f"it said '{MASK}..."
    assert values.text("nothing wrong with corr") == "nothing wrong with corr"


def test_a_value_is_known_until_everybody_has_dropped_it() -> None:
    values = Values()
    values.add(["hunter22"])
    values.add(["hunter22"])
    values.drop(["hunter22"])
    assert values.text("hunter22") == MASK
    values.drop(["hunter22"])
    assert values.text("hunter22") == "hunter22"


@for_each(
    ("text", "expected"),
    [
        ("postgresql://weft:pa@ss/word@db/weft down", f"postgresql://{MASK}@db/weft down"),
        ("get https://user:pw@shop.test/a?b=c", f"get https://{MASK}@shop.test/a?b=c"),
        ("Authorization: Bearer abc.def-123", f"Authorization: Bearer {MASK}"),
        ("with Bearer snake_case_token", f"with Bearer {MASK}"),
        ("send Authorization: Bearer weft_…", "send Authorization: Bearer weft_…"),
        ("authorization=Basic dXNlcjpwdw==", f"authorization=Basic {MASK}"),
        ("key weft_0123456789ab_" + "f" * 64, f"key weft_0123456789ab_{MASK}"),
        ("?api_key=12345&page=2", f"?api_key={MASK}&page=2"),
        ('{"db_password": "x y", "page": 2}', f'{{"db_password": "{MASK}", "page": 2}}'),
        (r'{"db_password": "x\"y", "page": 2}', f'{{"db_password": "{MASK}", "page": 2}}'),
        ('{"db_password": "C:\\"', f'{{"db_password": "{MASK}"'),
        ('{"db_password": "cut off', f'{{"db_password": "{MASK}"'),
        (f'{{"db_password": "x {MASK} y"}}', f'{{"db_password": "{MASK}"}}'),
        ("Set-Cookie: session=abc; Path=/", f"Set-Cookie: {MASK}; Path=/"),
        ("password is wrong", "password is wrong"),
        ("password: it must be longer", "password: it must be longer"),
        ("the token rejected basic settings", "the token rejected basic settings"),
        ("env is {{secret:TOKEN}}", "env is {{secret:TOKEN}}"),
        ("https://shop.test/a@b", "https://shop.test/a@b"),
    ],
)
def test_what_stands_in_the_place_of_a_secret_is_masked(text: str, expected: str) -> None:
    assert redacted(text) == expected


@for_each(
    "name", ["password", "DB_PASSWORD", "apiKey", "X-Api-Key", "token", "Authorization", "secret", "db_pw", "sessionid"]
)
def test_these_names_hold_secrets(name: str) -> None:
    assert redacted_tree({name: "x", "page": "x"}) == {name: MASK, "page": "x"}


@for_each("name", ["passed", "token_count", "tokenizer", "key", "monkey", "secretary", "author", "pwned", "session", 7])
def test_these_names_hold_none(name: object) -> None:
    assert not is_secret(name)


pieces = st.lists(st.sampled_from([b"abc", b"ab", b"c", b"abcab", b"d", b"x\n", b"abcabd", b"\xff"]), max_size=12)


@given(pieces)
def test_a_stream_masks_what_a_whole_text_masks_however_it_is_cut(parts: list[bytes]) -> None:
    whole = b"".join(parts)
    values = Values(["abcabd", "abca"])
    stream = MaskedStream(values)
    out = b"".join([*(stream.feed(part) for part in parts), stream.end()])
    one = MaskedStream(values)
    assert out == one.feed(whole) + one.end()
    assert b"abca" not in out
    assert len(out.replace(MASK.encode(), b"")) <= len(whole)


def test_a_stream_holds_back_only_what_may_become_a_value() -> None:
    stream = MaskedStream(Values(["hunter22"]))
    assert stream.feed(b"a line\n") == b"a line\n"
    assert stream.feed(b"so hun") == b"so "
    assert stream.feed(b"gry\n") == b"hungry\n"
    assert stream.feed(b"hunter2") == b""
    assert stream.feed(b"2!") == f"{MASK}!".encode()


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_log_line_shows_a_secret(known: str, form: str) -> None:
    stream, root = io.StringIO(), logging.getLogger()
    handlers, levels = root.handlers[:], (root.level, logging.getLogger("weft").level)
    try:
        logging_config.configure_logging(form, "debug", stream, role="test")
        log = logging.getLogger("weft.test")
        try:
            raise ValueError(f"no answer from https://u:{CANARY}@h/ with {CANARY}")
        except ValueError:
            log.exception("failed", extra={"password": "hunter22", "url": "redis://:hunter22@h", "data": {"t": CANARY}})
    finally:
        root.handlers[:] = handlers
        root.setLevel(levels[0])
        logging.getLogger("weft").setLevel(levels[1])
    line = stream.getvalue()
    assert "failed" in line
    assert "ValueError" in line
    assert "hunter22" not in line
    assert CANARY not in line
    assert json.dumps(CANARY)[1:-1] not in line


@for_each("unit", ["a", "a-", "pass", "token ", "redis://", "postgres+", "a://b:c", "x@", 'pwd="'])
def test_a_long_text_costs_no_more_than_its_length(unit: str) -> None:
    assert growth(redacted, unit) < TOO_MUCH


def test_passwords_are_masked_wherever_a_url_begins() -> None:
    assert redacted("to -https://ada:hunter22@shop.example/x") == f"to -https://{MASK}@shop.example/x"
    assert redacted("(postgresql+psycopg://weft:a/b@c d") == f"(postgresql+psycopg://{MASK}@c d"
