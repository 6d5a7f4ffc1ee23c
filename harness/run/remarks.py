"""Rules of a scheduler that a workload gives nothing to go by, told before they are compared.

Such a rule decides as a plainer one would, and a comparison of the two shows nothing but noise.
Pure: from what the engines say of themselves and the drawn workload.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engines.api import EngineInfo, JsonValue
from workloads.workload import Workload


def idle_rules(infos: Mapping[str, EngineInfo], workload: Workload) -> list[str]:
    """A sentence for each rule in force that finds all requests alike, with its engine's label."""
    return [
        f"{label}: {sentence}"
        for label, info in infos.items()
        for sentence in _idle(info.settings, workload)
    ]


def _idle(settings: Mapping[str, JsonValue], workload: Workload) -> Iterator[str]:
    order, by = settings.get("order"), settings.get("fair_by")
    if len(workload.priorities) < 2:
        remedy = "give its components a `priority` in a workload file of your own"
        alike = f"all requests of {workload.name} have the same priority"
        if order == "priority":
            yield f"{alike}, so order=priority decides as fcfs would; {remedy}"
        if settings.get("victim") == "lowest-priority":
            yield f"{alike}, so victim=lowest-priority decides as newest would; {remedy}"
    if order == "fair" and by == "client" and workload.num_sessions < 2:
        yield (
            f"all requests of {workload.name} are one client's, so order=fair decides as fcfs "
            "would; a workload with [sessions] has clients"
        )
    if order == "fair" and by == "class" and workload.num_classes < 2:
        yield (
            f"all requests of {workload.name} are of one class, so order=fair decides as fcfs "
            "would; give its components a `label` each in a workload file of your own"
        )
