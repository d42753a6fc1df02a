"""Logs of runs: what their bytes say, how they are stored, searched and read line by line."""
