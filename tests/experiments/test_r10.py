"""The reduced form of R10 passes, and fails as soon as an end is taken before what follows it is queued."""

import pytest

from experiments import r10

pytestmark = pytest.mark.timeout(300)


async def test_every_node_of_a_graph_runs_once_while_schedulers_are_killed() -> None:
    report = await r10.experiment()
    assert report.passed, str(report)
    assert report.total.ok == r10.REDUCED.graphs * r10.REDUCED.nodes, str(report)


@pytest.mark.red_control("r10")
async def test_ends_that_are_taken_before_what_follows_is_queued_are_found_to_be_lost() -> None:
    report = await r10.experiment(red=True)
    assert report.total.lost > 0, str(report)
