"""The process that does a partition of a crawl: ``python -m weft.crawler``, in the folder of its run."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from pathlib import Path

import msgspec
import uvloop

from weft import crawl_spec
from weft.crawler import egress, worker_channel
from weft.crawler.crawler import FAILED, LOST, Crawler, CrawlerExit, first_answer, write_exit_file
from weft.crawler.worker_channel import TurnRefused, WorkerChannel, WorkerGone
from weft.errors import WeftError

log = logging.getLogger("weft.crawler")

ORDER_FILE = "order.json"
GC_THRESHOLDS = (20_000, 20, 50)
"""How often garbage is looked for: hardly anything here refers to itself, and thousands of objects wait to be told."""


async def crawl(folder: Path) -> CrawlerExit:
    """Read the order, which may have secrets and is removed, and do what it says."""
    order = folder / ORDER_FILE
    spec = crawl_spec.read(msgspec.json.decode(order.read_bytes())["spec"])
    order.unlink()
    channel = WorkerChannel(Path(worker_channel.SOCKET))
    await channel.open()
    try:
        policy = await first_answer(channel)
        if not (spec.fetching.contact or policy.contact):
            return CrawlerExit(FAILED, "a crawl needs a contact: give fetching.contact or set crawl_contact")
        await egress.check_proxies(channel, spec.fetching.proxies)
        crawler = Crawler(spec, policy, channel, folder)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, crawler.stop)
        return await crawler.run()
    finally:
        await channel.close()


def main() -> int:
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(message)s")
    folder = Path.cwd()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        end = uvloop.run(crawl(folder))
    except WorkerGone as problem:
        end = CrawlerExit(LOST, str(problem))
    except (TurnRefused, WeftError) as problem:
        end = CrawlerExit(FAILED, str(problem))
    except Exception as problem:
        log.exception("the crawler broke")
        end = CrawlerExit(FAILED, f"{type(problem).__name__}: {problem}")
    write_exit_file(folder, end)
    log.info("ended: %s%s", end.reason, f": {end.message}" if end.message else "")
    return end.code


if __name__ == "__main__":
    sys.exit(main())
