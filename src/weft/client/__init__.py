"""A weft elsewhere, from Python: ``async with connect(url, token) as weft: await weft.runs.find({})``."""

from weft.client.client import Client, connect

__all__ = ["Client", "connect"]
