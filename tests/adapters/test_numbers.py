"""The numbers that a command says of itself, through a file that it may fill with anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.test_shell import run
from tests.cases import for_each
from weft.errors import Invalid
from weft.metrics import MOST_NUMBERS, numbers_of


async def test_a_command_says_numbers_of_itself(tmp_path: Path) -> None:
    ended, log = await run(tmp_path, script="""echo '{"pages": 12, "price": 1.5}' > "$WEFT_METRICS"; echo done""")
    assert (ended.outcome, log) == ("succeeded", b"done\n")
    assert ended.result == {"last_line": "done", "isolation": "L1", "metrics": {"pages": 12.0, "price": 1.5}}


async def test_a_command_that_fails_says_its_numbers_too(tmp_path: Path) -> None:
    ended, _ = await run(tmp_path, script="""echo '{"pages": 3}' > "$WEFT_METRICS"; exit 7""")
    assert (ended.exit_code, ended.result) == (7, {"last_line": "", "isolation": "L1", "metrics": {"pages": 3.0}})


@for_each(
    ("script", "why"),
    [
        ("echo '{' > $WEFT_METRICS", "must be an object in JSON"),
        ("echo '[1]' > $WEFT_METRICS", "must be an object of at most 20 numbers"),
        ("echo '{\"a\": true}' > $WEFT_METRICS", "the number a is True"),
        ('echo \'{"a": "1"}\' > $WEFT_METRICS', "the number a is '1'"),
        ("echo '{\"a\": NaN}' > $WEFT_METRICS", "the number a is nan"),
        ("echo '{\"a\": 1e999}' > $WEFT_METRICS", "the number a is inf"),
        ("echo '{\"a b\": 1}' > $WEFT_METRICS", "the name of a number is 'a b'"),
        ("head -c 100000 /dev/zero | tr '\\0' '[' > $WEFT_METRICS", "must be an object in JSON"),
        ("ln -s /etc/passwd $WEFT_METRICS", "must be a plain file"),
        ("mkdir $WEFT_METRICS", "must be a plain file"),
        ("mkfifo $WEFT_METRICS", "must be a plain file"),
        ("ln -s /dev/zero $WEFT_METRICS", "must be a plain file"),
    ],
)
async def test_what_is_no_number_is_told_in_the_log_and_ends_nothing(tmp_path: Path, script: str, why: str) -> None:
    ended, log = await run(tmp_path, script=script)
    assert (ended.outcome, "metrics" in (ended.result or {})) == ("succeeded", False)
    assert log.startswith(b"weft: ")
    assert why in log.decode()


def test_a_run_says_no_more_numbers_than_it_may() -> None:
    most = {f"n{number}": number for number in range(MOST_NUMBERS)}
    assert numbers_of(most) == most
    with pytest.raises(Invalid, match="at most 20 numbers"):
        numbers_of(most | {"one_more": 1})
    with pytest.raises(Invalid, match="must be a number that is not endless"):
        numbers_of({"huge": 10**400})
