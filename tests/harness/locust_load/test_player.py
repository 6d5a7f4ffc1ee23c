"""Who plays which request, when, and what is told of it; a fake clock and fake calls."""

from __future__ import annotations

import threading

import pytest

from engines.api import Request
from harness.locust_load.exchange import RUN_ENDED, Answer
from harness.locust_load.player import USER_STOPPED, News, Player, Seat

OK = "ok"


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1e-6
        return self.now_s


class Call:
    """Takes `takes_s`; or blocks until it is aborted."""

    def __init__(self, clock: Clock, takes_s: float | None) -> None:
        self._clock = clock
        self._takes_s = takes_s
        self.started = threading.Event()
        self.aborted = threading.Event()
        self.released = False

    def run(self) -> Answer:
        sent_s = self._clock.now_s
        self.started.set()
        if self._takes_s is None:
            assert self.aborted.wait(10)
            return Answer(sent_s, self._clock.now_s, "cancelled", None, RUN_ENDED)
        self._clock.now_s += self._takes_s
        return Answer(sent_s, self._clock.now_s, OK, "length", "", (self._clock.now_s,), (1,))

    def abort(self) -> None:
        self.aborted.set()

    def cancelled(self, reason: str) -> Answer:
        return Answer(None, self._clock.now_s, "cancelled", None, reason)

    def release(self) -> None:
        self.released = True


def requests(*at_s: float) -> list[Request]:
    return [Request(f"{i:05d}", (1, 2), 1, scheduled_s=time_s) for i, time_s in enumerate(at_s)]


def player(
    clock: Clock,
    asked: list[Request],
    *,
    closed: bool,
    takes_s: float | None = 1.0,
    chains: list[list[int]] | None = None,
    **more,
):
    calls: list[Call] = []

    def prepare(request: Request) -> Call:
        calls.append(Call(clock, takes_s))
        return calls[-1]

    more.setdefault("prepare", prepare)
    made = Player(
        asked, chains or [[i] for i in range(len(asked))], closed_loop=closed, clock=clock, **more
    )
    return made, calls


def test_a_closed_loop_counts_from_when_the_user_was_free():
    clock = Clock()
    played, _ = player(clock, requests(0.0, 0.0, 0.0), closed=True)
    seat = Seat()
    assert played.play_next(seat)
    freed_s = seat.freed_s
    assert freed_s == pytest.approx(1.0, abs=1e-3)
    assert played.play_next(seat)
    assert seat.freed_s == pytest.approx(2.0, abs=1e-3)
    news = played.news()
    assert news.arrivals == ((0, 0.0), (1, freed_s))
    assert [row.scheduled_s for row in news.rows] == [0.0, freed_s]
    assert [row.waited_s for row in news.rows] == [0.0, 0.0]


def test_an_open_loop_keeps_the_schedule_and_tells_the_wait_for_a_user():
    clock = Clock()
    played, _ = player(clock, requests(0.0, 0.25), closed=False)
    for _ in range(2):
        played.play_next(Seat())
    first, second = played.news().rows
    assert (first.scheduled_s, second.scheduled_s) == (0.0, 0.25)
    assert first.waited_s == pytest.approx(0.0, abs=1e-3)
    assert second.waited_s == pytest.approx(0.75, abs=1e-3)
    assert second.answer.sent_s == pytest.approx(1.0, abs=1e-3)


def test_nothing_is_told_twice_and_there_is_an_end():
    clock = Clock()
    played, _ = player(clock, requests(0.0), closed=True)
    assert not played.has_ended
    played.play_next(Seat())
    assert len(played.news().rows) == 1
    assert played.news() == News()
    assert played.has_ended
    assert not played.play_next(Seat())


def test_each_row_is_told_as_it_comes():
    clock, told = Clock(), []
    played, _ = player(
        clock,
        requests(0.0, 0.0),
        closed=True,
        tell=lambda request, row: told.append((request.request_id, row.index)),
    )
    played.play_next(Seat())
    assert told == [("00000", 0)]


def test_the_end_cuts_off_what_is_on_its_way_and_hands_nothing_out():
    clock = Clock()
    played, calls = player(clock, requests(0.0, 0.0), closed=True, takes_s=None)
    user = threading.Thread(target=played.play_next, args=(Seat(),))
    user.start()
    while not calls:
        pass
    assert calls[0].started.wait(10)
    played.end(grace_s=0.0)
    user.join(10)
    (row,) = played.news().rows
    assert (row.answer.status, row.answer.reason) == ("cancelled", RUN_ENDED)
    assert not played.play_next(Seat())
    assert len(calls) == 1


def test_a_request_whose_time_has_not_come_stays_unsent_at_the_end():
    clock = Clock()
    played, calls = player(clock, requests(1e9), closed=False)
    answers: list[bool] = []
    user = threading.Thread(target=lambda: answers.append(played.play_next(Seat())))
    user.start()
    while played.has_ended:
        pass
    played.end(grace_s=0.0)
    user.join(10)
    assert (answers, calls, played.news().rows) == ([False], [], ())
    assert played.has_ended


class UserKilled(BaseException):
    """As locust ends a user: from outside, and no error."""


def test_a_user_that_is_stopped_before_sending_leaves_its_request_to_the_others():
    clock = Clock()

    def killed(request: Request) -> Call:
        raise UserKilled

    played, _ = player(clock, requests(0.0, 0.0), closed=False, prepare=killed)
    with pytest.raises(UserKilled):
        played.play_next(Seat())
    assert played.news() == News()
    played._prepare = lambda request: Call(clock, 1.0)
    played.play_next(Seat())
    played.play_next(Seat())
    assert [row.index for row in played.news().rows] == [0, 1]


def test_a_user_that_is_stopped_while_its_request_is_on_its_way_cancels_it():
    clock = Clock()

    class Killed(Call):
        def run(self) -> Answer:
            raise UserKilled

    played, _ = player(
        clock, requests(0.0), closed=False, prepare=lambda request: Killed(clock, 1.0)
    )
    with pytest.raises(UserKilled):
        played.play_next(Seat())
    (row,) = played.news().rows
    assert (row.answer.status, row.answer.reason) == ("cancelled", USER_STOPPED)
    assert played.has_ended


def test_a_user_plays_a_session_to_its_end_before_another():
    """Two sessions of two turns and a request alone: one user plays them one after another."""
    clock = Clock()
    played, _ = player(clock, requests(*[0.0] * 5), closed=True, chains=[[0, 2], [1, 4], [3]])
    seat = Seat()
    while played.play_next(seat):
        pass
    assert [row.index for row in played.news().rows] == [0, 2, 1, 4, 3]
    assert played.has_ended


def test_a_run_has_not_ended_between_two_turns():
    clock = Clock()
    played, _ = player(clock, requests(0.0, 0.0), closed=True, chains=[[0, 1]])
    seat = Seat()
    played.play_next(seat)
    assert not played.has_ended
    assert not played.play_next(Seat())
    played.play_next(seat)
    assert played.has_ended


def test_the_rest_of_a_stopped_users_session_is_left_to_the_others():
    clock = Clock()

    class Killed(Call):
        def run(self) -> Answer:
            raise UserKilled

    played, _ = player(
        clock,
        requests(*[0.0] * 3),
        closed=True,
        chains=[[0, 1], [2]],
        prepare=lambda request: Killed(clock, 1.0),
    )
    with pytest.raises(UserKilled):
        played.play_next(Seat())
    played._prepare = lambda request: Call(clock, 1.0)
    seat = Seat()
    while played.play_next(seat):
        pass
    rows = played.news().rows
    assert [(row.index, row.answer.status) for row in rows] == [
        (0, "cancelled"),
        (1, "ok"),
        (2, "ok"),
    ]
