"""How long prompts and answers are: distributions, mixtures of them, and the clipping.

A length is drawn as a real number, rounded to the nearest whole one, and clipped to the
distribution's bounds and the model's context. What clipping changed is counted. Does not read
presets and draws no tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Final, Protocol

from engines.api import CbbenchError
from workloads.portable_math import exp
from workloads.randomness import Purpose, Stream

LARGEST_PRIORITY: Final = 100  # either way: beyond it `cbbench serve` clamps


class Distribution(Protocol):
    """A distribution of lengths in tokens. A draw is not rounded and not clipped."""

    @property
    def minimum(self) -> int: ...

    @property
    def maximum(self) -> int | None: ...

    def draw(self, stream: Stream) -> float: ...


@dataclass(frozen=True, slots=True)
class Fixed:
    value: int
    minimum: int = 1
    maximum: int | None = None

    def __post_init__(self) -> None:
        _require(self.value >= 1, f"a fixed length of {self.value}", "a whole number >= 1")

    def draw(self, stream: Stream) -> float:
        return float(self.value)


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every whole number from `low` to `high`, both included, equally often."""

    low: int
    high: int
    minimum: int = 1
    maximum: int | None = None

    def __post_init__(self) -> None:
        got = f"uniform lengths from {self.low} to {self.high}"
        _require(1 <= self.low <= self.high, got, "1 <= low <= high")

    def draw(self, stream: Stream) -> float:
        return float(self.low + int(stream.uniform() * (self.high - self.low + 1)))


@dataclass(frozen=True, slots=True)
class Normal:
    mean: float
    std: float
    minimum: int = 1
    maximum: int | None = None

    def __post_init__(self) -> None:
        got = f"normal lengths of mean {self.mean:g} and deviation {self.std:g}"
        _require(0 < self.mean < math.inf and 0 <= self.std < math.inf, got, "mean > 0, std >= 0")
        _check_bounds(self.minimum, self.maximum)

    def draw(self, stream: Stream) -> float:
        return self.mean + self.std * stream.normal()


@dataclass(frozen=True, slots=True)
class LogNormal:
    """`sigma` is the deviation of the natural logarithm."""

    median: float
    sigma: float
    minimum: int = 1
    maximum: int | None = None

    def __post_init__(self) -> None:
        got = f"lognormal lengths of median {self.median:g} and sigma {self.sigma:g}"
        _require(
            0 < self.median < math.inf and 0 <= self.sigma <= 10, got, "median > 0, sigma 0-10"
        )
        _check_bounds(self.minimum, self.maximum)

    def draw(self, stream: Stream) -> float:
        return self.median * exp(self.sigma * stream.normal())


@dataclass(frozen=True, slots=True)
class Exponential:
    mean: float
    minimum: int = 1
    maximum: int | None = None

    def __post_init__(self) -> None:
        _require(0 < self.mean < math.inf, f"exponential lengths of mean {self.mean:g}", "mean > 0")
        _check_bounds(self.minimum, self.maximum)

    def draw(self, stream: Stream) -> float:
        return self.mean * stream.exponential()


@dataclass(frozen=True, slots=True)
class Shared:
    """Beginnings that prompts have in common: so many texts, each equally often."""

    prefixes: int
    tokens: Distribution


@dataclass(frozen=True, slots=True)
class Component:
    """One part of a mixture, for prompt and answer together; the label is the request's class.

    With `every`, each so-manieth request is of this component, and its weight means nothing. The
    beginning that a prompt shares comes on top of the length that `prompt` gives. `priority` is
    each request's: the smallest number goes first where an engine heeds it.
    """

    label: str
    weight: float
    prompt: Distribution
    output: Distribution
    every: int | None = None
    shared: Shared | None = None
    priority: int = 0

    def __post_init__(self) -> None:
        got = f"component {self.label!r} with weight {self.weight:g}"
        _require(0 < self.weight < math.inf, got, "a weight > 0")
        _require(
            self.every is None or self.every >= 2,
            f"component {self.label!r} as every {self.every}th request",
            "every >= 2",
        )
        _require(
            abs(self.priority) <= LARGEST_PRIORITY,
            f"component {self.label!r} with priority {self.priority}",
            f"a priority from -{LARGEST_PRIORITY} to {LARGEST_PRIORITY}",
        )


@dataclass(frozen=True, slots=True)
class LengthPair:
    """What one request asks for. The flags say which length clipping has changed."""

    prompt: int
    output: int
    label: str = ""
    prompt_clipped: bool = False
    output_clipped: bool = False


def around(length: int, range_ratio: float) -> Distribution:
    """The whole numbers within [length * (1 - r), length * (1 + r)], both ends included.

    Raises `CbbenchError` unless `length >= 1` and `0 <= r < 1`.
    """
    _require(length >= 1, f"a length of {length}", "a whole number >= 1")
    _require(0 <= range_ratio < 1, f"a range ratio of {range_ratio:g}", "0 <= ratio < 1")
    ratio = Fraction(repr(float(range_ratio)))
    low, high = math.ceil(length * (1 - ratio)), math.floor(length * (1 + ratio))
    return Fixed(length) if low == high else Uniform(low, high)


class LengthDrawer:
    """Draws request after request; fewer of the same seed are the beginning of more.

    Components, prompts and outputs have a stream each: another output distribution leaves the
    prompts as they were. Raises `CbbenchError` when each component wants its own requests.
    """

    def __init__(self, components: Sequence[Component], seed: int) -> None:
        self._choices = Stream(seed, Purpose.COMPONENTS)
        self._prompts = Stream(seed, Purpose.PROMPT_LENGTHS)
        self._outputs = Stream(seed, Purpose.OUTPUT_LENGTHS)
        self._regular = [c for c in components if c.every is not None]
        self._others = [c for c in components if c.every is None]
        _require(bool(self._others), "a mixture of `every` alone", "a component with a weight")
        self._bounds = list(accumulate(component.weight for component in self._others))
        self._drawn = 0

    def component(self) -> Component:
        """Of the next request."""
        self._drawn += 1
        chosen = _index_of(self._choices.uniform() * self._bounds[-1], self._bounds)
        due = (c for c in self._regular if c.every and self._drawn % c.every == 0)
        return next(due, self._others[chosen])

    def pair(self, component: Component) -> LengthPair:
        """Not fitted to any context, and without what the prompt shares."""
        prompt, prompt_clipped = whole_length(component.prompt, self._prompts)
        output, output_clipped = whole_length(component.output, self._outputs)
        return LengthPair(prompt, output, component.label, prompt_clipped, output_clipped)


def fit_context(pair: LengthPair, max_model_len: int) -> LengthPair:
    """Clips to at least 1 each and to `max_model_len` together: the prompt gives way.

    The output only yields where it would leave the prompt no token, since the length of answers
    is what shapes a batch.
    """
    output = min(max(pair.output, 1), max_model_len - 1)
    prompt = min(max(pair.prompt, 1), max_model_len - output)
    return LengthPair(
        prompt,
        output,
        pair.label,
        pair.prompt_clipped or prompt != pair.prompt,
        pair.output_clipped or output != pair.output,
    )


def whole_length(distribution: Distribution, stream: Stream) -> tuple[int, bool]:
    """A length in tokens, and whether the distribution's bounds have changed it."""
    length = math.floor(distribution.draw(stream) + 0.5)
    clipped = max(length, distribution.minimum)
    if distribution.maximum is not None:
        clipped = min(clipped, distribution.maximum)
    return clipped, clipped != length


def _index_of(value: float, bounds: Sequence[float]) -> int:
    return next((i for i, bound in enumerate(bounds) if value < bound), len(bounds) - 1)


def _check_bounds(minimum: int, maximum: int | None) -> None:
    got = f"lengths between {minimum} and {maximum}"
    _require(minimum >= 1 and (maximum is None or minimum <= maximum), got, "1 <= min <= max")


def _require(holds: bool, got: str, expected: str) -> None:
    if not holds:
        raise CbbenchError(f"{got} cannot be drawn; expected {expected}")
