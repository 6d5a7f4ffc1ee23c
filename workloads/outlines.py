"""Requests before they have tokens: which numbered texts a prompt is made of, and whose turn it is.

A prompt is one text of its own, or a shared beginning and a text of its own, or all that was said
in a session so far. Parts of the same number are the same tokens, others differ from the first
token on (`prompts.PromptDrawer`). Draws numbers and lengths; knows no token and no time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise

from engines.api import CbbenchError
from workloads.lengths import (
    Component,
    Distribution,
    LengthDrawer,
    LengthPair,
    fit_context,
    whole_length,
)
from workloads.randomness import Purpose, Stream


@dataclass(frozen=True, slots=True)
class Part:
    """The first `length` tokens of the text of this number."""

    number: int
    length: int


Parts = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Sessions:
    """Requests that are turns: each prompt is the one before it, its answer, and a new text.

    The answer in it is drawn before the run, so that every engine gets the same prompt whatever
    it answered. `at_once` sessions go on side by side: a turn of each, then the next of each.
    """

    turns: Distribution
    at_once: int

    def __post_init__(self) -> None:
        if self.at_once < 1:
            raise CbbenchError(
                f"{self.at_once} sessions at once hold no request; give a whole number >= 1"
            )


@dataclass(frozen=True, slots=True)
class Outline:
    """A request to be. `lengths.prompt` is the length of all parts together."""

    lengths: LengthPair
    parts: Parts
    session: str | None = None
    priority: int = 0


def plain_outlines(lengths: Sequence[LengthPair]) -> list[Outline]:
    """Prompts that have nothing in common."""
    return [Outline(pair, (Part(i, pair.prompt),)) for i, pair in enumerate(lengths)]


def draw_outlines(
    components: Sequence[Component],
    sessions: Sessions | None,
    num_prompts: int,
    seed: int,
    max_model_len: int,
) -> list[Outline]:
    """The outlines of `num_prompts` requests, in the order of their arrivals.

    Fewer of the same seed are the beginning of more.
    """
    drawing = _Drawing(components, seed, max_model_len)
    if sessions is None:
        return [drawing.request() for _ in range(num_prompts)]
    return _side_by_side(drawing.sessions(sessions.turns, seed), sessions.at_once, num_prompts)


def shared_share(prompts: Sequence[tuple[int, ...]]) -> float:
    """The share of all prompt tokens that stand in a beginning which another prompt has too.

    The first to have it is not counted: in whatever order the prompts are served, a prefix cache
    that is empty at first and forgets nothing finds at most so many.
    """
    total = sum(map(len, prompts))
    common = sum(_common_prefix(one, other) for one, other in pairwise(sorted(prompts)))
    return common / total if total else 0.0


def _common_prefix(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    shorter = min(len(one), len(other))
    return next((i for i in range(shorter) if one[i] != other[i]), shorter)


class _Drawing:
    """Hands out the numbers of texts: shared beginnings first, then the others as they come."""

    def __init__(self, components: Sequence[Component], seed: int, max_model_len: int) -> None:
        self._lengths = LengthDrawer(components, seed)
        self._max_model_len = max_model_len
        self._numbers = count()
        self._prefixes = {
            component: self._draw_prefixes(component, Stream(seed, Purpose.PREFIX_LENGTHS, index))
            for index, component in enumerate(components)
        }
        self._choices = Stream(seed, Purpose.PREFIXES)

    def request(self) -> Outline:
        component = self._lengths.component()
        return self._turn(component, self._prefix(component), None)

    def sessions(self, turns: Distribution, seed: int) -> Iterator[list[Outline]]:
        """Session after session, without end."""
        wanted = Stream(seed, Purpose.TURNS)
        for index in count():
            number, _ = whole_length(turns, wanted)
            yield self._session(f"s{index:05d}", max(1, number))

    def _session(self, name: str, turns: int) -> list[Outline]:
        """Ends early rather than cutting what was said: its last turn is the last that fits."""
        component = self._lengths.component()
        history = self._prefix(component)
        session: list[Outline] = []
        while len(session) < turns:
            turn = self._turn(component, history, name)
            answer = Part(next(self._numbers), turn.lengths.output)
            if session and turn.parts[: len(history)] != history:
                break
            session.append(turn)
            history = (*turn.parts, answer)
        return session

    def _turn(self, component: Component, before: Parts, session: str | None) -> Outline:
        own = self._lengths.pair(component)
        parts = (*before, Part(next(self._numbers), own.prompt))
        whole = replace(own, prompt=sum(part.length for part in parts))
        fitted = fit_context(whole, self._max_model_len)
        return Outline(fitted, _cut(parts, fitted.prompt), session, component.priority)

    def _prefix(self, component: Component) -> Parts:
        prefixes = self._prefixes[component]
        if not prefixes:
            return ()
        return (prefixes[int(self._choices.uniform() * len(prefixes))],)

    def _draw_prefixes(self, component: Component, stream: Stream) -> list[Part]:
        shared = component.shared
        if shared is None:
            return []
        lengths = [whole_length(shared.tokens, stream)[0] for _ in range(shared.prefixes)]
        return [Part(next(self._numbers), length) for length in lengths]


def _cut(parts: Parts, length: int) -> Parts:
    """As many tokens: the last part gives way, but for its first token."""
    room = length - 1
    kept = []
    for part in parts[:-1]:
        kept.append(replace(part, length=min(part.length, room)))
        room -= kept[-1].length
    last = replace(parts[-1], length=min(parts[-1].length, room + 1))
    return (*(part for part in kept if part.length), last)


def _side_by_side(
    sessions: Iterator[list[Outline]], at_once: int, num_prompts: int
) -> list[Outline]:
    """A turn of each in the order of their beginnings; who has ended makes place for a new one."""
    places: list[deque[Outline]] = [deque() for _ in range(at_once)]
    turns: list[Outline] = []
    while True:
        for place in places:
            if len(turns) == num_prompts:
                return turns
            if not place:
                place.extend(next(sessions))
            turns.append(place.popleft())
