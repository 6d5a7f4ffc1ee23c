"""Uniform numbers from named, independent streams, and our own transforms of them.

Only the raw 64-bit words of PCG64 and `SeedSequence` are taken from numpy, which promises that
both stay as they are; its distributions may change between versions. So a workload's hash does
not change with a library. Nothing here holds a global generator.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from engines.api import CbbenchError
from workloads.portable_math import exp, log

_MAX_SEED: Final = 2**64
_CHUNK: Final = 256
Words = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]


class Purpose(IntEnum):
    """What a stream is for. A number is never given a new meaning: hashes depend on it."""

    ARRIVALS = 1
    COMPONENTS = 2
    PROMPT_LENGTHS = 3
    OUTPUT_LENGTHS = 4
    TOKENS = 5
    FIRST_TOKENS = 6
    SECOND_TOKENS = 7
    WARMUP = 8
    PREFIX_LENGTHS = 9
    PREFIXES = 10
    TURNS = 11


def check_seed(seed: int) -> None:
    """Raises `CbbenchError` for a seed that is negative or has more than 64 bits."""
    if not 0 <= seed < _MAX_SEED:
        raise CbbenchError(f"seed {seed} cannot be used; give a whole number from 0 to 2**64 - 1")


def uniforms(seed: int, purpose: Purpose, index: int, count: int) -> Floats:
    """`count` numbers in [0, 1) of the stream (seed, purpose, index); a prefix of longer ones."""
    generator = _generator(seed, purpose, index)
    return _to_unit(np.asarray(generator.random_raw(count), dtype=np.uint64))


class Stream:
    """One stream of numbers, drawn one after the other."""

    def __init__(self, seed: int, purpose: Purpose, index: int = 0) -> None:
        self._numbers = _endless(_generator(seed, purpose, index))

    def uniform(self) -> float:
        """In [0, 1)."""
        return next(self._numbers)

    def exponential(self) -> float:
        """With mean 1, by inversion."""
        return -log(1.0 - self.uniform())

    def normal(self) -> float:
        """With mean 0 and deviation 1, by Marsaglia's polar method; its second value is unused."""
        while True:
            x, y = 2.0 * self.uniform() - 1.0, 2.0 * self.uniform() - 1.0
            square = x * x + y * y
            if 0.0 < square < 1.0:
                return x * math.sqrt(-2.0 * log(square) / square)

    def gamma(self, shape: float) -> float:
        """With mean 1 and coefficient of variation 1/sqrt(shape).

        Marsaglia and Tsang (2000) for a shape >= 1; below, with their factor u^(1/shape).
        """
        if shape < 1.0:
            boost = exp(log(1.0 - self.uniform()) / shape)
            return self.gamma(shape + 1.0) * (shape + 1.0) / shape * boost
        d = shape - 1.0 / 3.0
        while True:
            x = self.normal()
            root = 1.0 + x / math.sqrt(9.0 * d)
            v = root * root * root
            if v > 0.0 and log(1.0 - self.uniform()) < 0.5 * x * x + d * (1.0 - v + log(v)):
                return d / shape * v


def permutation(seed: int, purpose: Purpose, size: int) -> npt.NDArray[np.int64]:
    """The numbers below `size` in a random order: the ranks of `size` raw words."""
    words = _generator(seed, purpose, 0).random_raw(size)
    return np.argsort(np.asarray(words, dtype=np.uint64), kind="stable").astype(np.int64)


def _generator(seed: int, purpose: Purpose, index: int) -> np.random.PCG64:
    return np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(int(purpose), index)))


def _endless(generator: np.random.PCG64) -> Iterator[float]:
    while True:
        words = np.asarray(generator.random_raw(_CHUNK), dtype=np.uint64)
        yield from _to_unit(words).tolist()


def _to_unit(words: Words) -> Floats:
    """The upper 53 bits of each word as a fraction."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
