"""A queue that was full a moment ago is taken to be full still, for a moment only, and for its own project only."""

import pytest

from weft.errors import QueueFull
from weft.runs.submission import FULL_SECONDS, FullQueues


def test_a_full_queue_is_remembered_for_a_moment() -> None:
    at = [0.0]
    full = FullQueues(now=lambda: at[0])
    full.refuse(["shop"])
    full.note(QueueFull("shop", 3))
    with pytest.raises(QueueFull, match="project shop has 3 runs waiting") as refused:
        full.refuse(["news", "shop"])
    assert refused.value.retry_after_seconds == 5
    full.refuse(["news"])
    at[0] = FULL_SECONDS
    full.refuse(["shop"])
