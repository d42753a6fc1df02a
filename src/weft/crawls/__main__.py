"""A process that does a share of a crawl: ``python -m weft.crawls``, in the folder of its run."""

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
from weft.crawls import line, ways_out
from weft.crawls.crawler import Crawler, first_answer
from weft.crawls.ending import FAILED, LOST, End, leave
from weft.crawls.talk import HungUp, Refused, Talk
from weft.errors import WeftError

log = logging.getLogger("weft.crawls")

ORDER = "order.json"
SELDOM = (20_000, 20, 50)
"""How often garbage is looked for: hardly anything here refers to itself, and thousands of objects wait to be told."""


async def crawl(folder: Path) -> End:
    """Read the order, which may have secrets and is removed, and do what it says."""
    order = folder / ORDER
    spec = crawl_spec.read(msgspec.json.decode(order.read_bytes())["spec"])
    order.unlink()
    talk = Talk(Path(line.SOCKET))
    await talk.open()
    try:
        policy = await first_answer(talk)
        if not (spec.fetching.contact or policy.contact):
            return End(FAILED, "a crawl needs a contact: give fetching.contact or set crawl_contact")
        await ways_out.check(talk, spec.fetching.proxies)
        crawler = Crawler(spec, policy, talk, folder)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, crawler.stop)
        return await crawler.run()
    finally:
        await talk.close()


def main() -> int:
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(message)s")
    folder = Path.cwd()
    gc.freeze()
    gc.set_threshold(*SELDOM)
    try:
        end = uvloop.run(crawl(folder))
    except HungUp as problem:
        end = End(LOST, str(problem))
    except (Refused, WeftError) as problem:
        end = End(FAILED, str(problem))
    except Exception as problem:
        log.exception("the crawler broke")
        end = End(FAILED, f"{type(problem).__name__}: {problem}")
    leave(folder, end)
    log.info("ended: %s%s", end.reason, f": {end.message}" if end.message else "")
    return end.code


if __name__ == "__main__":
    sys.exit(main())
