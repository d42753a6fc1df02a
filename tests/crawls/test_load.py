"""Whether a process that crawls can do with more hosts."""

from dataclasses import dataclass

from weft.crawler.reporter import LoadMonitor


@dataclass
class Clocks:
    cpu: float = 0.0
    wall: float = 0.0

    def load(self) -> LoadMonitor:
        return LoadMonitor(lambda: self.cpu, lambda: self.wall)

    def pass_by(self, wall: float, cpu: float) -> None:
        self.wall, self.cpu = self.wall + wall, self.cpu + cpu


def test_whoever_uses_nearly_all_of_a_core_has_no_room() -> None:
    clocks = Clocks()
    load = clocks.load()
    clocks.pass_by(0.2, 0.19)
    assert not load.has_room()
    load.begin()
    clocks.pass_by(0.2, 0.05)
    assert load.has_room()


def test_too_soon_nobody_knows() -> None:
    clocks = Clocks()
    load = clocks.load()
    clocks.pass_by(0.01, 0.0)
    assert not load.has_room()


def test_what_was_long_ago_does_not_count() -> None:
    clocks = Clocks()
    load = clocks.load()
    clocks.pass_by(10.0, 9.9)
    assert not load.has_room()
    clocks.pass_by(0.1, 0.01)
    assert load.has_room()


def test_whoever_is_woken_late_again_and_again_has_no_room() -> None:
    clocks = Clocks()
    load = clocks.load()
    clocks.pass_by(0.2, 0.1)
    for _ in range(5):
        load.woken(0.2)
    assert not load.has_room()
    for _ in range(20):
        load.woken(0.0)
    assert load.has_room()


def test_whoever_needs_little_has_room_even_on_a_busy_machine() -> None:
    clocks = Clocks()
    load = clocks.load()
    clocks.pass_by(0.2, 0.01)
    for _ in range(5):
        load.woken(0.2)
    assert load.has_room()
