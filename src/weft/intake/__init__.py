"""Runs that other systems ask for through a message queue, and messages that could not become one."""
