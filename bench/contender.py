"""What can be measured beside others: weft on a database, or a peer on its broker."""

from typing import Protocol


class Contender(Protocol):
    """A queue whose backlog of no-op tasks can be made and worked off."""

    @property
    def name(self) -> str: ...

    def drain(self, processes: int, tasks: int) -> float:
        """No-op tasks a second with so many worker processes, from a tenth to nine tenths of the completions.

        The backlog is made before the first worker starts, and its making is not timed.
        """

    def submit(self, tasks: int) -> float:
        """Tasks a second that one client hands over one by one, each acknowledged before the next."""
