"""Runs inside the spider's process. It imports nothing else of weft, and works with Python 3.9 and Scrapy 2.11.

The code of a project may run under another interpreter than weft's own, so this folder is loaded by its path
(``__main__.py``) under the name ``weft_agent``: its modules import each other relatively.
"""
