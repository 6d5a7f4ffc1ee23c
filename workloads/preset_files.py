"""Presets: workloads kept as data in `presets/*.toml`, and how such a file is read and checked.

A user may write one too. Reads and checks; draws nothing.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engines.api import CbbenchError
from workloads.arrivals import check_burstiness
from workloads.lengths import (
    Component,
    Distribution,
    Exponential,
    Fixed,
    LogNormal,
    Normal,
    Shared,
    Uniform,
)
from workloads.loads import AnyLoad, all_at_once, at_rate, relative
from workloads.outlines import Sessions
from workloads.suggest import unknown

_FOLDER: Final = Path(__file__).parent / "presets"
Table = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Preset:
    """A preset as its file has it."""

    name: str
    description: str
    source: str
    num_prompts: int
    burstiness: float
    components: tuple[Component, ...]
    default_loads: tuple[AnyLoad, ...]
    sessions: Sessions | None = None

    @property
    def composes_prompts(self) -> bool:
        """Whether prompts have parts in common, so that no single length makes them."""
        return self.sessions is not None or any(c.shared is not None for c in self.components)


def preset_names() -> list[str]:
    """The presets that come with the package, in alphabetical order."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def load_preset(name: str) -> Preset:
    """The preset of this name. Raises `CbbenchError` for an unknown one, with the list."""
    if name not in preset_names():
        raise unknown("workload", name, [*preset_names(), "trace:PATH", "jsonl:PATH", "PATH.toml"])
    return read_preset(_FOLDER / f"{name}.toml")


def read_preset(path: Path) -> Preset:
    """Reads a preset file. Raises `CbbenchError` naming the file, the key and what is expected."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CbbenchError(
            f"preset file {path} cannot be read: {error.strerror}; check the path"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CbbenchError(f"preset file {path} is not TOML: {error}; mend that place") from error
    try:
        return _preset(path.stem, _Keys("preset", table))
    except CbbenchError as error:
        raise CbbenchError(f"preset file {path}: {error}") from error


def _preset(name: str, keys: _Keys) -> Preset:
    keys.allow(
        "description", "source", "num_prompts", "burstiness", "components", "sessions", "loads"
    )
    burstiness = keys.number("burstiness", 1.0)
    check_burstiness(burstiness)
    return Preset(
        name=name,
        description=keys.text("description", ""),
        source=keys.text("source", "").strip(),
        num_prompts=keys.whole("num_prompts"),
        burstiness=burstiness,
        components=tuple(_component(part) for part in keys.tables("components")),
        default_loads=tuple(_load(part, burstiness) for part in keys.tables("loads")),
        sessions=_sessions(keys.table("sessions")) if "sessions" in keys.values else None,
    )


def _component(keys: _Keys) -> Component:
    keys.allow("label", "weight", "every", "priority", "shared", "prompt", "output")
    if "every" in keys.values and "weight" in keys.values:
        raise CbbenchError("a component has `every` or a `weight`, not both; leave one out")
    return Component(
        label=keys.text("label", ""),
        weight=keys.number("weight", 1.0),
        prompt=_distribution(keys.table("prompt")),
        output=_distribution(keys.table("output")),
        every=keys.whole("every") if "every" in keys.values else None,
        shared=_shared(keys.table("shared")) if "shared" in keys.values else None,
        priority=keys.integer("priority", 0),
    )


def _shared(keys: _Keys) -> Shared:
    keys.allow("prefixes", "tokens")
    return Shared(keys.whole("prefixes"), _distribution(keys.table("tokens")))


def _sessions(keys: _Keys) -> Sessions:
    keys.allow("turns", "at_once")
    return Sessions(_distribution(keys.table("turns")), keys.whole("at_once"))


def _distribution(keys: _Keys) -> Distribution:
    kind = keys.text("kind")
    if kind not in _DISTRIBUTIONS:
        raise unknown("kind of lengths", kind, _DISTRIBUTIONS)
    return _DISTRIBUTIONS[kind](keys)


def _fixed(keys: _Keys) -> Distribution:
    keys.allow("kind", "value")
    return Fixed(keys.whole("value"))


def _uniform(keys: _Keys) -> Distribution:
    keys.allow("kind", "low", "high")
    return Uniform(keys.whole("low"), keys.whole("high"))


def _normal(keys: _Keys) -> Distribution:
    keys.allow("kind", "mean", "std", "min", "max")
    return Normal(keys.number("mean"), keys.number("std"), *keys.bounds())


def _lognormal(keys: _Keys) -> Distribution:
    keys.allow("kind", "median", "sigma", "min", "max")
    return LogNormal(keys.number("median"), keys.number("sigma"), *keys.bounds())


def _exponential(keys: _Keys) -> Distribution:
    keys.allow("kind", "mean", "min", "max")
    return Exponential(keys.number("mean"), *keys.bounds())


_DISTRIBUTIONS: Final[Mapping[str, Callable[[_Keys], Distribution]]] = {
    "fixed": _fixed,
    "uniform": _uniform,
    "normal": _normal,
    "lognormal": _lognormal,
    "exponential": _exponential,
}


def _load(keys: _Keys, burstiness: float) -> AnyLoad:
    keys.allow("kind", "fraction_of_best", "request_rate", "max_concurrency")
    cap = keys.whole("max_concurrency") if "max_concurrency" in keys.values else None
    match keys.text("kind"):
        case "all-at-once":
            return all_at_once(cap)
        case "rate":
            return at_rate(keys.number("request_rate"), cap)
        case "relative":
            return relative(keys.number("fraction_of_best"), burstiness, cap)
        case other:
            raise unknown("kind of load", other, ["all-at-once", "rate", "relative"])


@dataclass(frozen=True, slots=True)
class _Keys:
    """A table of the file, read key by key; each reader says what it expected."""

    name: str
    values: Table

    def allow(self, *known: str) -> None:
        for key in self.values:
            if key not in known:
                raise unknown(f"key of {self.name}", key, known)

    def text(self, key: str, default: str | None = None) -> str:
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, value, "a text")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            raise self._wrong(key, value, "a number")
        return float(value)

    def whole(self, key: str) -> int:
        value = self._get(key, None)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self._wrong(key, value, "a whole number >= 1")
        return value

    def integer(self, key: str, default: int) -> int:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, value, "a whole number")
        return value

    def bounds(self) -> tuple[int, int | None]:
        low = self.whole("min") if "min" in self.values else 1
        return low, self.whole("max") if "max" in self.values else None

    def table(self, key: str) -> _Keys:
        value = self._get(key, None)
        if not isinstance(value, dict):
            raise self._wrong(key, value, "a table, as in { kind = 'fixed', value = 128 }")
        return _Keys(key, value)

    def tables(self, key: str) -> list[_Keys]:
        value = self._get(key, None)
        if not isinstance(value, list) or not value or not all(isinstance(v, dict) for v in value):
            raise self._wrong(key, value, f"at least one [[{key}]]")
        return [_Keys(key, part) for part in value]

    def _get(self, key: str, default: object) -> object:
        value = self.values.get(key, default)
        if value is None:
            raise CbbenchError(f"{self.name} has no key {key!r}; add it")
        return value

    def _wrong(self, key: str, value: object, expected: str) -> CbbenchError:
        return CbbenchError(f"key {key!r} of {self.name} is {value!r}; expected {expected}")
