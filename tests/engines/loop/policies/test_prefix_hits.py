"""A prompt's share of a step is judged by what is left to compute, once its prefix hit is known."""

from __future__ import annotations

from engines.api import Request
from engines.loop.policies.chunked import ChunkedPolicy
from engines.loop.policies.prefill_first import PrefillFirstPolicy


def alike(names, shared, own, scheduled_s):
    """Prompts that begin with the same `shared` tokens and end with `own` others; one answer."""
    return [
        Request(name, (*range(shared), *(1000 + 100 * i + j for j in range(own))), 1, scheduled_s)
        for i, name in enumerate(names)
    ]


def test_prompts_that_are_mostly_cached_are_let_in_together(lab):
    """Four of 100 tokens, 90 of them cached, are 40 to compute: one step of a budget of 100."""
    first, *others = alike("abcde", 90, 10, 0.0)
    later = [Request(r.request_id, r.prompt_token_ids, 1, 1.5) for r in others]
    world = lab(PrefillFirstPolicy(8, 100), block_size=10, prefix_caching=True)
    run = world.play([first, *later])
    assert [row.executed for row in run.rows] == [100, 40]
    assert {run.times()[r.request_id][0] for r in later} == {2.5}


def test_a_whole_prompt_fits_beside_a_decode_if_what_it_lacks_does(lab, request_of):
    """64 tokens, 48 of them cached, in a budget of 64 of which one is a decode's."""
    first, later = alike("ab", 48, 16, 0.0)
    policy = ChunkedPolicy(4, 64, enable_chunked_prefill=False)
    requests = [
        first,
        request_of("decode", 2, 20, scheduled_s=0.5),
        Request("later", later.prompt_token_ids, 1, 4.5),
    ]
    run = lab(policy, block_size=16, prefix_caching=True).play(requests)
    assert run.times()["later"] == [6.0]
    assert run.end_s()["decode"] == 21.0
