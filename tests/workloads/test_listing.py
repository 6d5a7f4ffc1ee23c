from __future__ import annotations

from pathlib import Path

import pytest

from workloads.listing import LengthSummary, describe, describe_presets
from workloads.preset_files import preset_names
from workloads.workload import open_workload


def test_every_preset_is_listed_with_its_lengths_and_loads() -> None:
    listed = {described.name: described for described in describe_presets()}
    assert list(listed) == preset_names()
    mix = listed["chat-mix"]
    assert mix.classes == ("chat", "retrieval")
    assert mix.loads == ("all-at-once", "poisson-70%")
    assert mix.prompt is not None
    assert mix.prompt.p50 == pytest.approx(85, rel=0.05)
    assert listed["anyscale-2023"].classes == ()
    assert listed["anyscale-2023"].prompt == LengthSummary(512.0, 512.0, 512.0, 512.0, 512)


def test_what_prompts_have_in_common_is_listed() -> None:
    listed = {described.name: described for described in describe_presets()}
    assert {name for name, d in listed.items() if d.shared_prompt_share} == {
        "multi-turn",
        "shared-prefix",
    }
    assert listed["shared-prefix"].shared_prompt_share == pytest.approx(0.76, abs=0.01)
    assert listed["multi-turn"].shared_prompt_share == pytest.approx(0.58, abs=0.01)
    assert {name: d.sessions for name, d in listed.items() if d.sessions} == {"multi-turn": 13}


def test_trace_is_described_by_its_rows(real_traces: Path) -> None:
    path = real_traces / "azure_llm_2023_code_min00-20.csv"
    described = describe(open_workload(f"trace:{path}"))
    assert described.num_prompts == 3628
    assert described.prompt is not None
    assert described.output is not None
    assert (described.prompt.p50, described.prompt.max) == (1397.0, 7437)
    assert (described.output.p50, described.output.max) == (13.0, 1899)


def test_texts_have_no_lengths_yet(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "a"}')
    described = describe(open_workload(f"jsonl:{path}"))
    assert described.num_prompts == 1
    assert described.prompt is None
    assert described.loads == ("all-at-once", "poisson-70%")


def test_summary_interpolates_linearly() -> None:
    summary = LengthSummary.of([1, 2, 3, 4])
    assert (summary.mean, summary.p50, summary.max) == (2.5, 2.5, 4)
    assert summary.p95 == pytest.approx(3.85)
    assert summary.p99 == pytest.approx(3.97)
