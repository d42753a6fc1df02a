"""Numbered steps from one schema to the next, forward only, one file each: ``m0021_….py`` with ``upgrade(connection)``.

A new database gets ``schema`` as it is; an older one gets the steps it lacks. The first release has schema 20, and no
steps.
"""
