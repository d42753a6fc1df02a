"""Of submits that come together, those that fit are queued, with few questions, and the others are refused."""

from collections import Counter
from collections.abc import Sequence

from weft.errors import QueueFull, WeftError
from weft.runs.model import NewRun, RunSpec, Submitted
from weft.tasks.tasks import RunsToSubmit, submit_what_fits


class Queues:
    """Has room for so many runs of each project."""

    def __init__(self, **room: int) -> None:
        self.room, self.questions = Counter(room), 0

    def admit(self, submits: Sequence[RunsToSubmit]) -> list[list[Submitted]]:
        self.questions += 1
        wanted = Counter(run.project for asked in submits for run in asked)
        for project, count in wanted.items():
            if count > self.room[project]:
                raise QueueFull(project, self.room[project])
        self.room -= wanted
        return [[Submitted(0) for _ in asked] for asked in submits]

    def outcomes(self, text: str) -> str:
        """What came of submits, each a word whose letters are the projects of its runs: ``+`` is queued."""
        submits = [[run(letter) for letter in word] for word in text.split()]
        answers = submit_what_fits(submits, self.admit)
        return " ".join(map(said, answers))


def said(answer: list[Submitted] | WeftError) -> str:
    if isinstance(answer, list):
        return "+" * len(answer)
    assert isinstance(answer, QueueFull)
    return answer.project


def run(project: str) -> NewRun:
    return NewRun(project=project, task="noop", kind="noop", spec=RunSpec(spec={}))


def test_what_fits_is_asked_for_once() -> None:
    queues = Queues(a=3, b=2)
    assert queues.outcomes("a b aa b") == "+ + ++ +"
    assert queues.questions == 1


def test_those_who_came_first_get_the_room_and_others_are_not_harmed() -> None:
    assert Queues(a=2, b=9).outcomes("a b a a b a b") == "+ + + a + a +"


def test_a_submit_is_queued_whole_or_not_at_all() -> None:
    queues = Queues(a=1, b=9)
    assert queues.outcomes("b a ab bb") == "+ + a ++"
    assert queues.room == Counter(b=6)


def test_nothing_is_made_of_nothing() -> None:
    assert Queues().outcomes("") == ""


def test_few_questions_find_what_fits_of_many() -> None:
    queues = Queues(a=100)
    assert queues.outcomes("a " * 500).split() == ["+"] * 100 + ["a"] * 400
    assert queues.questions <= 20
