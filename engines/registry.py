"""Engines by name: the entry-point group `cbbench.engines` and the spec language.

A spec is `NAME`, `NAME[key=value,...]`, with `label=` in front if wanted. Reading a spec loads no
heavy library: an entry carries a light description, and the place of its builder as text.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from engines.api import CbbenchError, Engine, JsonValue
from engines.plugins import load_entries

if TYPE_CHECKING:
    from engines.loop.plan_log import TurnObserver

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
class Variant:
    """One choice of an engine, and the settings that come with it."""

    summary: str
    settings: tuple[Setting, ...]


@dataclass(frozen=True, slots=True)
class Variants:
    """What one setting of an engine, `by`, chooses among; an empty `by`: nothing.

    `installed` is asked only when a spec is read, since it may import plug-ins.
    """

    by: str = ""
    installed: Callable[[], Mapping[str, Variant]] = dict


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
    variants: Variants = field(default_factory=Variants)

    def settings_under(self, choice: JsonValue) -> tuple[Setting, ...]:
        """All that can be set once the variant is chosen; `choice` is the value of its setting."""
        variant = self.variants.installed().get(str(choice))
        return self.settings + (variant.settings if variant is not None else ())


@dataclass(frozen=True, slots=True)
class BuildContext:
    """What all engines of a run share: the model and the machine.

    `dtype` and `device` are already resolved except for `auto`, which the worker resolves.
    `kv_memory` is in bytes and equal for every engine of a run. `observer` is told the turns of
    an engine that plans steps; it lives in the engine's own process.
    """

    model: str = "tiny"
    device: str = "auto"
    dtype: str = "auto"
    threads: int | None = None
    kv_memory: int = 512 * 1024**2
    max_model_len: int | None = None
    client_processes: int = 1
    observer: TurnObserver | None = None

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
    return load_entries(ENTRY_POINT_GROUP, EngineEntry, "engine")


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


def _parse_engine(text: str, installed: Mapping[str, EngineEntry]) -> EngineSpec:
    label, body = _split_label(text)
    name, bracket, rest = body.partition("[")
    name = name.strip()
    if bracket and not rest.rstrip().endswith("]"):
        raise CbbenchError(f"engine {text!r} goes on after its bracket; expected NAME[key=value]")
    if name not in installed:
        raise unknown_name("engine", name, list(installed))
    entry = installed[name]
    texts = _split_settings(entry, rest.rstrip()[:-1] if bracket else "")
    choice = _choice(entry, texts)
    known = {setting.name: setting for setting in entry.settings_under(choice)}
    given = {key: _parse_setting(entry, known, choice, key, texts[key]) for key in texts}
    settings = {s.name: s.default for s in known.values()} | dict(entry.preset) | given
    return EngineSpec(label=label or body, name=name, settings=settings, text=body)


def _split_label(text: str) -> tuple[str, str]:
    head, equals, tail = text.partition("=")
    if equals and "[" not in head:
        if not head.strip() or not tail.strip():
            raise CbbenchError(f"engine {text!r} has an empty label or name; expected LABEL=NAME")
        return head.strip(), tail.strip()
    return "", text.strip()


def _split_settings(entry: EngineEntry, text: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for part in split_outside_brackets(text):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise CbbenchError(f"setting {part!r} of {entry.name!r} is not of the form key=value")
        if key in given:
            raise CbbenchError(f"setting {key!r} of {entry.name!r} is given twice")
        given[key] = value.removeprefix('"').removesuffix('"')
    return given


def _choice(entry: EngineEntry, texts: Mapping[str, str]) -> JsonValue:
    """Which variant is meant: as given, as the name stands for, or the default."""
    by = entry.variants.by
    if by in entry.preset:
        return entry.preset[by]
    for setting in entry.settings:
        if setting.name == by:
            return _read(entry, setting, texts[by]) if by in texts else setting.default
    return None


def _parse_setting(
    entry: EngineEntry, known: Mapping[str, Setting], choice: JsonValue, key: str, text: str
) -> JsonValue:
    if key in entry.preset:
        raise CbbenchError(
            f"{entry.name!r} already means {key}={entry.preset[key]}; "
            f"use 'loop[{key}={text}]' to choose another"
        )
    if key not in known:
        raise _unknown_setting(entry, known, choice, key)
    return _read(entry, known[key], text)


def _unknown_setting(
    entry: EngineEntry, known: Mapping[str, Setting], choice: JsonValue, key: str
) -> CbbenchError:
    by = entry.variants.by
    owners = [
        name
        for name, variant in entry.variants.installed().items()
        if any(setting.name == key for setting in variant.settings)
    ]
    if owners:
        return CbbenchError(
            f"setting {key!r} of {entry.name!r} goes with {by}={' or '.join(owners)}, "
            f"here it is {by}={choice}; known: {', '.join(sorted(known))}"
        )
    return unknown_name(f"setting of {entry.name!r}", key, list(known))


def _read(entry: EngineEntry, setting: Setting, text: str) -> JsonValue:
    try:
        return setting.parse(text)
    except ValueError as error:
        raise CbbenchError(
            f"setting {setting.name}={text} of {entry.name!r}: expected {error}"
        ) from error
