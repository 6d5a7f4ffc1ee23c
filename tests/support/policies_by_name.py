"""Every installed policy by its name, as an engine's settings would make it."""

from __future__ import annotations

from typing import Any

from engines.loop.build import make_policy
from engines.loop.policies.registry import PolicyContext, installed_policies
from engines.registry import installed_engines, parse_engines

POLICIES = sorted(installed_policies())
PREEMPTING = ["chunked", "prefill-first"]
REQUEST_LEVEL = ["static", "window"]
CONTEXT = 4096


def policy_of(name: str, **settings: object) -> Any:
    """Of the settings those that the policy has."""
    known = {setting.name for setting in installed_policies()[name].settings}
    given = ",".join(f"{k}={v}" for k, v in settings.items() if k in known)
    (spec,) = parse_engines(f"loop[policy={name},{given}]", installed_engines())
    return make_policy(spec.settings, PolicyContext("cpu", CONTEXT))
