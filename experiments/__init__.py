"""Fault experiments: what weft promises, put to the test with real processes, real servers and kill -9."""
