"""Handing on again and again: what is wrong at first ends it, what goes wrong later is told once."""

import pytest

from autotune.errors import EnvironmentTrouble
from autotune.watch.outlets import Outlet, Round


class Place:
    """Refuses when it is told to."""

    def __init__(self) -> None:
        self.refuses = False
        self.taken = self.ended = 0

    def hand_on(self) -> None:
        if self.refuses:
            raise EnvironmentTrouble("the place is full", hint="make room")
        self.taken += 1

    def end(self) -> None:
        if self.refuses:
            raise EnvironmentTrouble("the place is full", hint="make room")
        self.ended += 1


@pytest.fixture
def place() -> Place:
    return Place()


def test_trouble_at_first_ends_it(place: Place) -> None:
    place.refuses = True
    said: list[str] = []
    round_ = Round([Outlet("the place", place.hand_on, place.end)], said.append)
    with pytest.raises(EnvironmentTrouble, match="the place is full"):
        round_.go()
    round_.end()
    assert (place.ended, said) == (0, [])


def test_later_trouble_is_told_once_and_its_end_as_well_and_others_go_on(place: Place) -> None:
    other, said = Place(), list[str]()
    round_ = Round(
        [Outlet("the place", place.hand_on, place.end), Outlet("other", other.hand_on, other.end)], said.append
    )
    round_.go()
    place.refuses = True
    for _ in range(3):
        round_.go()
    assert said == ["the place is full; tried again each time"]
    place.refuses = False
    round_.go()
    round_.go()
    assert said[1:] == ["the place takes metrics again"]
    assert (place.taken, other.taken) == (3, 6)
    place.refuses = True
    round_.end()
    assert said[2:] == ["old metrics stay: the place is full"]
    assert (place.ended, other.ended) == (0, 1)
