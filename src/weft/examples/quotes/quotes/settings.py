"""Scrapy's settings of this project."""

SITE = "http://127.0.0.1:6800/demo/"
"""Where the demo site is; `weft up` writes its own address here."""

BOT_NAME = "quotes"
SPIDER_MODULES = ["quotes.spiders"]
NEWSPIDER_MODULE = "quotes.spiders"
ROBOTSTXT_OBEY = True
DOWNLOAD_DELAY = 0
FEED_EXPORT_ENCODING = "utf-8"
