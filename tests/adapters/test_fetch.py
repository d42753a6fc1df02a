"""What a server says of its text is not believed where that would cost us."""

from __future__ import annotations

import pytest

from weft.adapters.executors._fetch import Answer


@pytest.mark.parametrize("charset", ["punycode", "IDNA", "no-such", "utf-8", ""])
def test_a_text_is_read_whatever_the_server_calls_it(charset: str) -> None:
    answer = Answer(200, "http://here", {"content-type": f"text/html; charset={charset}"}, "Grüße".encode(), False, "")
    assert answer.text == "Grüße"
