"""Policies by name: the entry-point group `cbbench.policies`, the built-in ones too.

An entry is light: reading it loads no torch, so the command line can check settings with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engines.api import JsonValue
from engines.loop.plan import Policy
from engines.plugins import load_entries
from engines.registry import Setting, Variant, unknown_name

ENTRY_POINT_GROUP: Final = "cbbench.policies"


@dataclass(frozen=True, slots=True)
class PolicyContext:
    """What a policy may need to know of its surroundings when it fills in a setting left open."""

    device: str  # "cpu" or "cuda"
    max_model_len: int  # tokens


Make = Callable[[Mapping[str, JsonValue], PolicyContext], Policy[Any]]


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """`make` builds the policy; it raises `CbbenchError` for settings that cannot work together."""

    name: str
    summary: str
    settings: tuple[Setting, ...]
    make: Make


def installed_policies() -> dict[str, PolicyEntry]:
    """All entries by name. Raises `CbbenchError` naming a plug-in that cannot be used."""
    return load_entries(ENTRY_POINT_GROUP, PolicyEntry, "policy")


def policy_variants() -> dict[str, Variant]:
    """What each policy brings to `loop`."""
    return {
        name: Variant(entry.summary, entry.settings) for name, entry in installed_policies().items()
    }


def policy_name(text: str) -> str:
    """Reads the name of an installed policy. Raises `CbbenchError` with the nearest one."""
    installed = installed_policies()
    if text not in installed:
        raise unknown_name("policy", text, list(installed))
    return text
