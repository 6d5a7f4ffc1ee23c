"""Planted stalls, in virtual time: the cause is named, and every setting named shortens it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from engines.api import Request, RequestStats
from engines.loop.policies.registry import installed_policies
from harness.explain.advice import Advice, shorter_stall, sooner_start
from harness.explain.spans import began_s
from harness.explain.stalls import Meanwhile, Stall, meanwhile
from harness.metrics.latency import longest_gap, max_stall_s, ttft_s
from harness.records import CellRecord

POOL = {"num_blocks": 400, "block_size": 4, "max_num_seqs": 8}
OF_ANY_LOOP = {"num_blocks", "block_size", "allocator", "reserve", "prefix_caching"}


def spec_of(settings) -> str:
    """Of the settings given, those that the policy knows."""
    policy = settings["policy"]
    known = {setting.name for setting in installed_policies()[policy].settings} | OF_ANY_LOOP
    pairs = [f"{name}={str(value).lower()}" for name, value in settings.items() if name in known]
    return f"loop[policy={policy},{','.join(pairs)}]"


def request(name: str, prompt: int, answer: int, at_s: float = 0.0, **more) -> Request:
    return Request(name, tuple(range(1, prompt + 1)), answer, scheduled_s=at_s, **more)


@dataclass(frozen=True)
class Context:
    """A cost in which old positions are read, too, and padding's with them."""

    per_position_s: float

    def seconds(self, batch) -> float:
        read = sum(row.start + len(row.tokens) for row in batch.rows)
        read += sum(row.context + row.num_tokens for row in batch.padding)
        return 0.01 + self.per_position_s * read

    def swap_seconds(self, batch) -> float:
        return 0.0


def found(cell: CellRecord, name: str):
    (one,) = [r for r in cell.requests if r.request_id == name]
    return one


def advice_for(cell: CellRecord, name: str) -> list[Advice]:
    one = found(cell, name)
    gap = longest_gap(one)
    assert gap is not None
    stall = Stall(cell, (one,), gap.start_s, gap.end_s, one.stats.max_stall_cause)
    return shorter_stall(stall, meanwhile(cell, gap.start_s, gap.end_s, [one]))


class Planted:
    """A case: its settings, its requests, and who stalls."""

    def __init__(self, simulate, settings, requests, cost=None):
        self._simulate, self._requests, self._cost = simulate, requests, cost
        self._settings = POOL | {"policy": "chunked"} | settings
        self._number = 0
        self.cell = self.run({})

    def run(self, change) -> CellRecord:
        self._number += 1
        more = {} if self._cost is None else {"cost": self._cost}
        spec = spec_of(self._settings | change)
        return self._simulate("x=" + spec, self._requests, number=self._number, **more)

    def check(self, name: str, cause: str, changes: list[dict[str, object]]) -> None:
        """Cause and settings are these, and each of them alone shortens the stall."""
        assert found(self.cell, name).stats.max_stall_cause == cause
        named = [advice.settings for advice in advice_for(self.cell, name)]
        assert named == changes
        before_s = max_stall_s(found(self.cell, name))
        for change in named:
            after_s = max_stall_s(found(self.run(change), name))
            assert after_s < 0.95 * before_s, change


DECODE = request("d", 2, 60)


def test_one_long_prompt_beside_a_decode(simulate):
    planted = Planted(
        simulate, {"max_num_batched_tokens": 256}, [DECODE, request("p", 200, 3, 0.2)]
    )
    planted.check(
        "d",
        "prefill",
        [{"max_num_batched_tokens": 2 + 100}, {"long_prefill_token_threshold": 100}],
    )


def test_several_prompts_beside_a_decode(simulate):
    prompts = [request(f"p{i}", 60, 3, 0.2) for i in range(5)]
    planted = Planted(simulate, {"max_num_batched_tokens": 256}, [DECODE, *prompts])
    planted.check("d", "prefill", [{"max_num_batched_tokens": 6 + 127}])


def test_whole_prompts_beside_a_decode(simulate):
    settings = {"max_num_batched_tokens": 512, "enable_chunked_prefill": False}
    planted = Planted(simulate, settings, [DECODE, request("p", 300, 3, 0.2)])
    change = {"enable_chunked_prefill": True, "max_num_batched_tokens": 2 + 150}
    planted.check("d", "prefill", [change])


@pytest.mark.parametrize("policy", ["prefill-first", "orca"])
def test_policies_that_run_prompts_whole(simulate, policy):
    prompts = [request(f"p{i}", 60, 3, 0.2) for i in range(5)]
    planted = Planted(simulate, {"policy": policy}, [DECODE, *prompts])
    change = {"policy": "chunked", "max_num_batched_tokens": 6 + 150}
    planted.check("d", "prefill", [change])


def test_memory_that_runs_out(simulate):
    """Case N1's shape: the later of two is preempted and computed again."""
    settings = {"num_blocks": 25, "max_num_batched_tokens": 64}
    planted = Planted(simulate, settings, [request("a", 16, 60), request("b", 16, 60, 0.4)])
    planted.check(
        "b",
        "preemption",
        [
            {"num_blocks": 50},
            {"max_num_seqs": 1},
            {"admission": "watermark", "watermark": 0.4},
            {"admission": "full"},
        ],
    )


def test_a_place_that_another_rank_took(simulate):
    settings = {"order": "priority", "max_num_seqs": 1, "admission": "full"}
    requests = [request("low", 4, 20, priority=5), request("high", 4, 20, 0.1, priority=1)]
    planted = Planted(simulate, settings, requests)
    assert found(planted.cell, "low").stats.max_stall_cause == "preemption"
    first, *_ = advice_for(planted.cell, "low")
    assert first.settings == {"order": "fcfs"}
    before_s = max_stall_s(found(planted.cell, "low"))
    assert max_stall_s(found(planted.run(first.settings), "low")) < 0.5 * before_s


def test_a_budget_below_the_residents(simulate):
    requests = [request(f"r{i}", 1, 20) for i in range(8)]
    planted = Planted(simulate, {"max_num_batched_tokens": 3}, requests)
    name = max(planted.cell.requests, key=lambda r: max_stall_s(r) or 0.0).request_id
    planted.check(name, "token_budget", [{"max_num_batched_tokens": 8}, {"max_num_seqs": 3}])


def test_a_budget_that_goes_to_other_ranks(simulate):
    settings = {"max_num_batched_tokens": 2, "max_num_seqs": 4, "order": "srpt"}
    requests = [request("long", 2, 40)] + [
        request(f"r{i}", 1, 4, 0.1 + 0.001 * i) for i in range(12)
    ]
    planted = Planted(simulate, settings, requests)
    assert found(planted.cell, "long").stats.max_stall_cause in ("token_budget", "preemption")
    by_order = [a for a in advice_for(planted.cell, "long") if a.settings == {"order": "fcfs"}]
    assert len(by_order) == 1
    before_s = max_stall_s(found(planted.cell, "long"))
    assert max_stall_s(found(planted.run({"order": "fcfs"}), "long")) < 0.5 * before_s


@pytest.mark.parametrize("policy", ["static", "window"])
def test_rows_that_have_ended_and_are_computed_on(simulate, policy):
    """The longest gap is the last one, when most rows are padding behind a long context."""
    requests = [request("long", 4, 60), *(request(f"r{i}", 4, 5) for i in range(7))]
    planted = Planted(simulate, {"policy": policy}, requests, Context(0.001))
    planted.check("long", "compute", [{"policy": "chunked"}])


def test_many_rows_in_a_step(simulate):
    requests = [request(f"r{i}", 1, 20) for i in range(8)]
    planted = Planted(simulate, {"max_num_batched_tokens": 64}, requests)
    planted.check("r0", "compute", [{"max_num_seqs": 4}])


def test_prompts_that_are_computed_again(simulate):
    """A decode stands beside another's recomputation: more memory saves both."""
    settings = {"num_blocks": 22, "max_num_batched_tokens": 64}
    requests = [request("a", 2, 60), request("b", 4, 30), request("c", 4, 60)]
    planted = Planted(simulate, settings, requests)
    assert found(planted.cell, "a").stats.max_stall_cause == "prefill"
    first, *_ = advice_for(planted.cell, "a")
    assert first.settings == {"num_blocks": 44}
    before_s = max_stall_s(found(planted.cell, "a"))
    assert max_stall_s(found(planted.run(first.settings), "a")) < 0.95 * before_s


def queue_advice(cell: CellRecord, name: str) -> list[Advice]:
    one = found(cell, name)
    began = began_s(one)
    assert began is not None
    return sooner_start(cell, meanwhile(cell, one.scheduled_s, began, [one]))


@pytest.mark.parametrize("policy", ["static", "window"])
def test_a_wait_for_a_whole_batch(simulate, policy):
    batch = [request("long", 4, 60), *(request(f"r{i}", 4, 5) for i in range(7))]
    planted = Planted(simulate, {"policy": policy}, [*batch, request("late", 4, 5, 0.3)])
    changes = [advice.settings for advice in queue_advice(planted.cell, "late")]
    assert changes[0] == {"policy": "chunked"}
    before_s = ttft_s(found(planted.cell, "late"))
    assert ttft_s(found(planted.run(changes[0]), "late")) < 0.3 * before_s


def test_a_wait_for_a_place(simulate):
    requests = [request(f"r{i}", 4, 40) for i in range(4)]
    planted = Planted(simulate, {"max_num_seqs": 2}, [*requests, request("late", 4, 5, 0.1)])
    changes = [advice.settings for advice in queue_advice(planted.cell, "late")]
    assert changes == [{"max_num_seqs": 4}]
    before_s = ttft_s(found(planted.cell, "late"))
    assert ttft_s(found(planted.run(changes[0]), "late")) < 0.95 * before_s


def test_a_wait_for_memory(simulate):
    requests = [request(f"r{i}", 40, 40) for i in range(2)]
    settings = {"num_blocks": 40, "admission": "full"}
    planted = Planted(simulate, settings, [*requests, request("late", 40, 5, 0.1)])
    changes = [advice.settings for advice in queue_advice(planted.cell, "late")]
    assert changes == [{"num_blocks": 80}]
    before_s = ttft_s(found(planted.cell, "late"))
    assert ttft_s(found(planted.run(changes[0]), "late")) < 0.95 * before_s


def of_cause(player, cause, seen: Meanwhile, settings=None, name: str = "loop", spec: str = "loop"):
    stats = RequestStats(max_stall_cause=cause)
    player.record(
        [player.request("a")],
        player.answer("a", [1.0, 2.0], stats),
        info=player.info(name, settings or {}),
    )
    from harness.records import read_cells

    (cell,) = read_cells(player.folder)
    stall = Stall(replace(cell, spec=spec), cell.requests, 1.0, 2.0, cause)
    return shorter_stall(stall, seen)


def test_a_step_far_slower_than_its_like_is_no_settings_doing(player):
    (advice,) = of_cause(player, "compute", Meanwhile(rows=8, slowness=9.0), {"max_num_seqs": 8})
    assert advice.settings is None
    assert "9.0 times the usual" in advice.why


def test_one_row_alone_and_what_no_scheduler_can_help(player):
    (advice,) = of_cause(player, "compute", Meanwhile(rows=1), {"max_num_seqs": 8})
    assert (advice.settings, advice.engine) == (None, "")
    player.folder = player.folder / "other"
    (advice,) = of_cause(player, None, Meanwhile())
    assert "does not tell" in advice.why


def test_generate_has_continuous_batching_to_change_to(player):
    seen = Meanwhile(rows=4, padding=9)
    first, second = of_cause(player, "compute", seen, {"max_batch_size": 8}, "static", "static")
    assert (first.engine, first.settings) == ("continuous", None)
    assert second.settings == {"max_batch_size": 2}


def test_memory_is_asked_for_by_the_setting_in_force(player):
    settings = {"kv_memory": 1000, "num_blocks": 10}
    first, *_ = of_cause(player, "preemption", Meanwhile(), settings, spec="continuous")
    assert first.settings == {"kv_memory": 2000}
    player.folder = player.folder / "other"
    first, *_ = of_cause(player, "preemption", Meanwhile(), settings, spec="loop[num_blocks=10]")
    assert first.settings == {"num_blocks": 20}


def test_a_policy_of_others_is_told_only_settings_that_it_has(player):
    settings = {"policy": "mine"}
    advice = of_cause(player, "token_budget", Meanwhile(running=4), settings)
    assert [a.settings for a in advice] == [None]
    assert "no setting" in advice[0].why
