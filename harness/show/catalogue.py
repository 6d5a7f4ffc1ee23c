"""The lists that the command line prints: engines and workloads, as plain lines. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from engines.api import JsonValue
from engines.registry import EngineEntry, Setting, Variant

if TYPE_CHECKING:
    from workloads.listing import Description

_WIDTH: Final = 100


def engine_lines(entry: EngineEntry) -> list[str]:
    """An engine's name and meaning, then its settings; those that its name fixes are marked."""
    lines = [entry.name, *wrapped(entry.summary, 2)]
    for setting in entry.settings:
        lines += _setting_lines(setting, entry)
    return [*lines, *_variant_lines(entry), ""]


def workload_lines(workload: Description) -> list[str]:
    """A preset in words, then the quantiles of its lengths, in tokens."""
    lines = [workload.name, *wrapped(workload.description, 2)]
    lines += wrapped(f"from: {workload.source}", 2) if workload.source else []
    lines.append(f"  {workload.num_prompts} requests; loads: {', '.join(workload.loads)}")
    if workload.classes:
        lines += wrapped(f"classes: {', '.join(workload.classes)}", 2)
    if workload.sessions:
        lines.append(f"  {workload.sessions} sessions, each request a turn of one")
    if workload.shared_prompt_share:
        share = f"{workload.shared_prompt_share:.0%}"
        lines.append(f"  {share} of prompt tokens begin another prompt too (prefix caching)")
    rows: list[tuple[str, ...]] = [("tokens", "mean", "p50", "p95", "p99", "max")]
    for name, summary in (("prompt", workload.prompt), ("answer", workload.output)):
        if summary is not None:
            values = (summary.mean, summary.p50, summary.p95, summary.p99, summary.max)
            rows.append((name, *(f"{value:.0f}" for value in values)))
    return [*lines, *(f"    {line}" for line in columns(rows)), ""]


def value_text(value: JsonValue) -> str:
    """A setting's value as it is typed."""
    if value is None:
        return "auto"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def wrapped(text: str, indent: int) -> list[str]:
    margin = " " * indent
    return textwrap.wrap(text, _WIDTH, initial_indent=margin, subsequent_indent=margin)


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells in columns: the first to the left, numbers to the right, nothing cut."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        first, *rest = (cell for cell in row)
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines


def _variant_lines(entry: EngineEntry) -> list[str]:
    """What can be chosen among, then each setting once with the choices that know it."""
    by = entry.variants.by
    fixed = entry.preset.get(by)
    variants = {
        name: variant
        for name, variant in entry.variants.installed().items()
        if fixed is None or name == fixed
    }
    owners: dict[Setting, list[str]] = {}
    for name, variant in variants.items():
        for setting in variant.settings:
            owners.setdefault(setting, []).append(name)
    lines = [] if fixed is not None else _choice_lines(by, variants)
    for setting, names in owners.items():
        head, *rest = _setting_lines(setting, entry)
        known_by = "" if len(names) == len(variants) else f"  ({by} {', '.join(names)})"
        lines += [head + known_by, *rest]
    return lines


def _choice_lines(by: str, variants: Mapping[str, Variant]) -> list[str]:
    lines = []
    for name, variant in variants.items():
        lines += wrapped(f"{by}={name}: {variant.summary}", 6)
    return lines


def _setting_lines(setting: Setting, entry: EngineEntry) -> list[str]:
    if setting.name in entry.preset:
        return [f"    {setting.name}={value_text(entry.preset[setting.name])} (fixed)"]
    return [
        f"    {setting.name}={value_text(setting.default)}",
        *wrapped(setting.help, 8),
    ]
