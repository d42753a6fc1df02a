"""scrapy-redis: ``python scrapy_redis_spider.py REDIS FEED SEED…`` does as ``scrapy_spider.py``, queued in Redis."""

import sys

from scrapy_spider import crawl

if __name__ == "__main__":
    redis, feed, *seeds = sys.argv[1:]
    crawl(
        feed,
        seeds,
        {
            "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
            "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
            "REDIS_URL": redis,
            "SCHEDULER_FLUSH_ON_START": True,
        },
    )
