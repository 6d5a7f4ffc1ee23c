"""Engines by name: the entry-point group `cbbench.engines` and the spec language.

A spec is `NAME`, `NAME[key=value,...]`, with `label=` in front if wanted. Reading a spec loads no
heavy library: an entry carries a light description, and the place of its builder as text.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from itertools import pairwise
from pathlib import Path
from typing import Final, cast

from engines.api import CbbenchError, Engine, JsonValue

ENTRY_POINT_GROUP: Final = "cbbench.engines"
Parser = Callable[[str], JsonValue]


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of an engine: how its text is read, its default and its meaning.

    `parse` raises `ValueError` with a phrase that says what is expected ("a whole number >= 1").
    """

    name: str
    parse: Parser
    default: JsonValue
    help: str


@dataclass(frozen=True, slots=True)
class EngineEntry:
    """A light description of an engine. `builder` is `package.module:function`.

    The function takes `(settings, context)` and returns an `Engine`; it is imported only in the
    worker process. `preset` fixes settings that the name stands for and a spec may not change.
    """

    name: str
    summary: str
    settings: tuple[Setting, ...]
    builder: str
    preset: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class BuildContext:
    """What all engines of a run share: the model and the machine.

    `dtype` and `device` are already resolved except for `auto`, which the worker resolves.
    `kv_memory` is in bytes and equal for every engine of a run.
    """

    model: str = "tiny"
    device: str = "auto"
    dtype: str = "auto"
    threads: int | None = None
    kv_memory: int = 512 * 1024**2
    max_model_len: int | None = None

    @property
    def model_name(self) -> str:
        """The model for a result file, which can be given to anyone: of a folder its own name."""
        path = Path(self.model).expanduser()
        is_local = path.is_dir() or path.is_absolute()
        return (Path.cwd() / path).name if is_local else self.model


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One engine of a run: its label, its entry's name and every setting, defaults filled in."""

    label: str
    name: str
    settings: Mapping[str, JsonValue]
    text: str


def installed_engines() -> dict[str, EngineEntry]:
    """All entries by name, in alphabetical order.

    Raises `CbbenchError` naming a plug-in that cannot be imported, or two of one engine's name.
    """
    points = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda p: p.name)
    for one, other in pairwise(points):
        if one.name == other.name:
            raise CbbenchError(
                f"two plug-ins announce an engine {one.name!r}: {_origin(one)} and "
                f"{_origin(other)}; uninstall one of them"
            )
    entries: dict[str, EngineEntry] = {}
    for point in points:
        try:
            entry = point.load()
        except Exception as error:
            raise CbbenchError(
                f"engine plug-in {point.name!r} ({point.value}) cannot be imported: "
                f"{type(error).__name__}: {error}; repair or uninstall it"
            ) from error
        if not isinstance(entry, EngineEntry):
            raise CbbenchError(
                f"engine plug-in {point.name!r} ({point.value}) is a {type(entry).__name__}, "
                "expected an engines.registry.EngineEntry"
            )
        entries[point.name] = entry
    return entries


def parse_engines(text: str, installed: Mapping[str, EngineEntry]) -> list[EngineSpec]:
    """Reads `a=static,b=continuous[max_num_seqs=64]`.

    Raises `CbbenchError` for an unknown engine, an unknown key, a bad value or a label used twice.
    """
    specs = [_parse_engine(part, installed) for part in split_outside_brackets(text)]
    if not specs:
        raise CbbenchError(f"no engine given in {text!r}; expected NAME or NAME[key=value,...]")
    seen: set[str] = set()
    for spec in specs:
        if spec.label in seen:
            raise CbbenchError(
                f"two engines are called {spec.label!r}; give each its own label, "
                f"as in 'a={specs[0].text},b={spec.text}'"
            )
        seen.add(spec.label)
    return specs


def build_engine(spec: EngineSpec, entry: EngineEntry, context: BuildContext) -> Engine:
    """Imports the builder and builds. Raises `CbbenchError` when the builder cannot be found."""
    module_name, _, function_name = entry.builder.partition(":")
    try:
        builder = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise CbbenchError(
            f"engine {spec.name!r} needs {entry.builder}, which cannot be imported: {error}"
        ) from error
    return cast(Engine, builder(spec.settings, context))


def split_outside_brackets(text: str, separator: str = ",") -> list[str]:
    """Parts between separators that stand outside brackets and double quotes; empty ones dropped.

    Raises `CbbenchError` for a bracket or quote that is never closed.
    """
    parts, depth, quoted, current = [], 0, False, ""
    for character in text:
        if character == '"':
            quoted = not quoted
        elif not quoted:
            depth += (character == "[") - (character == "]")
        if depth < 0:
            break
        if character == separator and depth == 0 and not quoted:
            parts.append(current)
            current = ""
        else:
            current += character
    if depth != 0 or quoted:
        raise CbbenchError(f"brackets or quotes do not match in {text!r}; expected NAME[key=value]")
    return [part.strip() for part in [*parts, current] if part.strip()]


def unknown_name(kind: str, name: str, known: Sequence[str]) -> CbbenchError:
    """The error for a name that is not among `known`, with the nearest one."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return CbbenchError(f"unknown {kind} {name!r}; {hint}known: {', '.join(sorted(known))}")


def _origin(point: EntryPoint) -> str:
    """`package (module:ENTRY)`."""
    return f"{point.dist.name if point.dist else 'an unknown package'} ({point.value})"


def _parse_engine(text: str, installed: Mapping[str, EngineEntry]) -> EngineSpec:
    label, body = _split_label(text)
    name, bracket, rest = body.partition("[")
    name = name.strip()
    if bracket and not rest.rstrip().endswith("]"):
        raise CbbenchError(f"engine {text!r} goes on after its bracket; expected NAME[key=value]")
    if name not in installed:
        raise unknown_name("engine", name, list(installed))
    entry = installed[name]
    given = _parse_settings(entry, rest.rstrip()[:-1] if bracket else "")
    settings = {s.name: s.default for s in entry.settings} | dict(entry.preset) | given
    return EngineSpec(label=label or body, name=name, settings=settings, text=body)


def _split_label(text: str) -> tuple[str, str]:
    head, equals, tail = text.partition("=")
    if equals and "[" not in head:
        if not head.strip() or not tail.strip():
            raise CbbenchError(f"engine {text!r} has an empty label or name; expected LABEL=NAME")
        return head.strip(), tail.strip()
    return "", text.strip()


def _parse_settings(entry: EngineEntry, text: str) -> dict[str, JsonValue]:
    known = {setting.name: setting for setting in entry.settings}
    given: dict[str, JsonValue] = {}
    for part in split_outside_brackets(text):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise CbbenchError(f"setting {part!r} of {entry.name!r} is not of the form key=value")
        if key not in known:
            raise unknown_name(f"setting of {entry.name!r}", key, list(known))
        if key in given:
            raise CbbenchError(f"setting {key!r} of {entry.name!r} is given twice")
        if key in entry.preset:
            raise CbbenchError(
                f"{entry.name!r} already means {key}={entry.preset[key]}; "
                f"use 'loop[{key}={value}]' to choose another"
            )
        try:
            given[key] = known[key].parse(value.removeprefix('"').removesuffix('"'))
        except ValueError as error:
            raise CbbenchError(
                f"setting {key}={value} of {entry.name!r}: expected {error}"
            ) from error
    return given
