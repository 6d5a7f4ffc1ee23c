"""The model alone as judge: its scores are the engines', its gaps those of its own logits."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from transformers import AutoModelForCausalLM  # noqa: E402

from engines.api import CbbenchError, Request, Sampling, StepEvents  # noqa: E402
from engines.clock import WallClock  # noqa: E402
from engines.judging import Question  # noqa: E402
from engines.loop.executors.sampling import gumbel_noise, noise_key  # noqa: E402
from engines.models.teacher import judge  # noqa: E402
from engines.registry import (  # noqa: E402
    BuildContext,
    build_engine,
    installed_engines,
    parse_engines,
)
from workloads.sources import ScheduledSource  # noqa: E402

PROMPT = tuple(3 + (i * 37) % 120 for i in range(20))
SAMPLED = Sampling(temperature=0.8, top_p=0.9, top_k=40, seed=5)


def context(model, dtype: str = "float32") -> BuildContext:
    return BuildContext(
        model=str(model), dtype=dtype, device="cpu", threads=1, kv_memory=16 * 2**20
    )


def test_gaps_are_those_of_the_models_own_logits(checkpoint) -> None:
    model = AutoModelForCausalLM.from_pretrained(checkpoint("llama"), dtype=torch.float32)
    with torch.inference_mode():
        logits = model(torch.tensor([PROMPT])).logits[0, -1]
    best = int(torch.argmax(logits))
    (judged,) = judge(context(checkpoint("llama")), [Question("a", PROMPT, (best, 7, 8))])
    assert judged.best == best
    assert judged.best_logit == pytest.approx(float(logits[best]), abs=1e-5)
    expected = [float(logits[best] - logits[token]) for token in (best, 7, 8)]
    assert judged.behind == pytest.approx(expected, abs=1e-5)
    assert judged.behind[0] == 0.0


def test_gaps_of_sampled_tokens_are_in_logits_too(checkpoint) -> None:
    """A temperature stretches scores, not what the model says: noise counts as temperature x it."""
    sampling = Sampling(temperature=0.25, seed=5)
    model = AutoModelForCausalLM.from_pretrained(checkpoint("llama"), dtype=torch.float32)
    with torch.inference_mode():
        logits = model(torch.tensor([PROMPT])).logits[0, -1].double()
    noise = gumbel_noise(noise_key(5, "a", len(PROMPT)), len(logits), logits.device)
    scores = logits + 0.25 * noise
    question = Question("a", PROMPT, (7, 8), sampling)
    (judged,) = judge(context(checkpoint("llama")), [question])
    expected = [float(scores.max() - scores[token]) for token in (7, 8)]
    assert judged.behind == pytest.approx(expected, abs=1e-4)
    named = replace(question, sampling=replace(sampling, noise_id="other"))
    assert judge(context(checkpoint("llama")), [named])[0].behind != judged.behind


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_resolution_is_the_step_of_the_type_at_the_best_logit(checkpoint, dtype: str) -> None:
    (judged,) = judge(context(checkpoint("llama"), dtype), [Question("a", PROMPT, (7,))])
    kind = getattr(torch, dtype)
    value = torch.tensor(abs(judged.best_logit), dtype=kind)
    above = torch.nextafter(value, torch.tensor(math.inf, dtype=kind))
    assert judged.resolution == float(above.double() - value.double())


@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_each_token_that_an_engine_gives_is_the_teachers(checkpoint, family, sampling) -> None:
    """Sampled tokens too: the noise belongs to the request and the position."""
    requests = [Request(f"r{i}", PROMPT[i:], 8, sampling=sampling) for i in range(4)]
    answers: dict[str, list[int]] = {}

    class Sink:
        def emit(self, events: StepEvents) -> None:
            for name, ids in zip(events.request_ids, events.token_ids, strict=True):
                answers.setdefault(name, []).extend(ids)

    installed = installed_engines()
    (spec,) = parse_engines("continuous[max_num_seqs=3,block_size=4]", installed)
    engine = build_engine(spec, installed[spec.name], context(checkpoint(family)))
    clock = WallClock()
    engine.run(ScheduledSource(requests, clock), Sink(), clock)
    engine.close()
    questions = [
        Question(r.request_id, r.prompt_token_ids + tuple(ids[:i]), (ids[i],), sampling)
        for r in requests
        for ids in (answers[r.request_id],)
        for i in range(8)
    ]
    judgements = judge(context(checkpoint(family)), questions)
    assert max(judgement.behind[0] for judgement in judgements) < 1e-4
    greedy = [Question(q.request_id, q.context, q.candidates) for q in questions]
    differs = any(j.behind[0] > 1e-4 for j in judge(context(checkpoint(family)), greedy))
    assert differs is (sampling is SAMPLED)


def test_a_model_that_is_not_there_is_a_mistake(tmp_path) -> None:
    with pytest.raises(CbbenchError, match="gone"):
        judge(context(tmp_path / "gone"), [Question("a", (1,), (2,))])
