"""What a partition of a crawl says to its worker, and does with the answers."""

from tests.crawls.test_workbench import lease, workbench
from weft.crawler.host_scheduler import HostScheduler
from weft.crawler.messages import CrawlTurnReply
from weft.crawler.reporter import PendingReport, Reporter
from weft.crawler.stats import CrawlStats
from weft.ports import Kept, Turned


def dialogue(bench: HostScheduler) -> Reporter:
    return Reporter(bench, PendingReport(), CrawlStats(), 60.0)


def turn(talk: Reporter, hosts: int = 0, *, others_hungry: bool = False) -> bool:
    """One question and its answer, with so many hosts; whether it said that it has none."""
    told = talk.compose()
    assert told.question.asked is not None
    kept = [Kept(held=True) for _ in told.hosts]
    leases = [lease(f"host{number}.example") for number in range(hosts)]
    talk.take(told, CrawlTurnReply(1, Turned(kept=kept, leases=leases), others_hungry=others_hungry))
    return told.question.asked.hungry


async def test_half_of_the_hosts_are_given_back_to_a_partition_that_has_none() -> None:
    bench = workbench(delay_seconds=0.0)
    talk = dialogue(bench)
    for number in range(4):
        bench.add(lease(f"host{number}.example"), 0)
    assert not turn(talk, others_hungry=True)
    assert sum(held.leaving for held in bench.hosts.values()) == 2
    turn(talk, others_hungry=True)
    assert [held.leaving for held in bench.hosts.values()] == [False, False], "once in a while is enough"


async def test_a_partition_that_had_none_gives_nothing_back_because_of_itself() -> None:
    bench = workbench(delay_seconds=0.0)
    talk = dialogue(bench)
    assert turn(talk, hosts=4, others_hungry=True)
    turn(talk, others_hungry=True)
    assert [held.leaving for held in bench.hosts.values()] == [False] * 4
