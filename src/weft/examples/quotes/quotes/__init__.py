"""An example of a Scrapy project: it collects the sayings of weft's own demo site."""
