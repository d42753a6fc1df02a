from __future__ import annotations

import asyncio
import json
import os
import sys

import pytest

from experiments.namespace import Namespace
from tests.fetching.canaries import ADDRESSES, BY_THEMSELVES


@pytest.mark.skipif(
    os.geteuid() != 0 and os.environ.get("CI") != "true", reason="only root may make a network namespace"
)
async def test_no_listener_on_a_closed_address_hears_anything() -> None:
    with Namespace() as namespace:
        command = [*namespace.prefix, sys.executable, "-m", "tests.fetching.canaries"]
        child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        output, _ = await child.communicate()
    told = json.loads(output)
    assert told["guarded"] == {"heard": {}, "kinds": {"refused_address": 4 * len(ADDRESSES + BY_THEMSELVES)}}
    assert set(told["open"]["heard"]) >= {"127.0.0.1", "10.1.2.3", "169.254.169.254", "fd00:ec2::254"}, (
        "the canaries would have been heard"
    )
