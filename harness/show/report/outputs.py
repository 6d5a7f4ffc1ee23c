"""The report's section on equal outputs, where they were checked."""

from __future__ import annotations

from harness.results.values import RunFile
from harness.show.report.markup import escaped


def output_lines(run: RunFile) -> list[str]:
    """What `--check-outputs` found; nothing where it was not asked for."""
    check = run.settings.get("output_check")
    if not check:
        return []
    told = [f"- {item['kind']}: {escaped(item['told'])}" for item in check["differences"]]
    more = check["num_differences"] - len(told)
    rest = [f"- and {more} more"] if more else []
    return ["## Equal outputs", "", escaped(check["sentence"]) + ".", "", *told, *rest]
