"""Numbered steps from one schema to the next, forward only, one file each: ``m0002_….py`` with ``upgrade(connection)``.

A new database gets ``schema`` as it is; an older one gets the steps it lacks. A test compares the two.
"""
