"""The `generate` engines on real, very small models."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engines.api import GREEDY, CbbenchError, Request, Sampling, StepEvents
from engines.clock import WallClock
from engines.generate_stream import pad_left
from engines.models.load import load_model
from engines.registry import BuildContext, build_engine, installed_engines, parse_engines
from workloads.sources import ScheduledSource

Checkpoint = Callable[[str], Path]


class Record:
    """Keeps every event; `on_step` is called after each step."""

    def __init__(self, on_step: Callable[[int], None] = lambda step: None) -> None:
        self.steps, self.finishes = [], {}
        self.outputs: dict[str, list[int]] = {}
        self.on_step = on_step

    def emit(self, events: StepEvents) -> None:
        for name, tokens in zip(events.request_ids, events.token_ids, strict=True):
            self.outputs.setdefault(name, []).extend(tokens)
        self.finishes |= {finish.request_id: finish for finish in events.finished}
        if events.step is not None:
            self.steps.append(events.step)
            self.on_step(events.step.step)


def build(spec: str, model: object, **context):
    installed = installed_engines()
    (parsed,) = parse_engines(spec, installed)
    settings = {"dtype": "float32", "device": "cpu"} | context
    return build_engine(parsed, installed[parsed.name], BuildContext(model=str(model), **settings))


def serve(engine, requests: Sequence[Request], record: Record | None = None) -> Record:
    clock, record = WallClock(), record or Record()
    engine.run(ScheduledSource(requests, clock), record, clock)
    return record


def request(name: str, prompt: Sequence[int], max_tokens: int | None, **rest) -> Request:
    return Request(name, tuple(prompt), max_tokens, **rest)


def prompts(lengths: Sequence[int], vocabulary: int = 128) -> list[tuple[int, ...]]:
    generator = torch.Generator().manual_seed(3)
    return [
        tuple(torch.randint(3, vocabulary, (length,), generator=generator).tolist())
        for length in lengths
    ]


@contextmanager
def forwards(engine) -> Iterator[list[dict[str, torch.Tensor]]]:
    """The inputs of each forward pass of the engine's model, as the model gets them."""
    seen: list[dict[str, torch.Tensor]] = []
    model = engine._setup.packer._model
    inner = model.get_input_embeddings()
    inputs: dict[str, torch.Tensor] = {}

    def whole(module, args, kwargs) -> None:
        inputs.update({k: v for k, v in kwargs.items() if isinstance(v, torch.Tensor)})

    def embedded(module, args) -> None:
        seen.append({**inputs, "embedded": args[0]})
        inputs.clear()

    handles = [
        model.register_forward_pre_hook(whole, with_kwargs=True),
        inner.register_forward_pre_hook(embedded),
    ]
    yield seen
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral", "gpt2"])
def test_padding_does_not_change_the_tokens(checkpoint: Checkpoint, family: str):
    mixed = [request(f"r{i}", p, 16) for i, p in enumerate(prompts([2, 5, 11]))]
    alone = serve(build("sequential", checkpoint(family)), mixed)
    together = serve(build("static[max_batch_size=3]", checkpoint(family)), mixed)
    assert len(together.steps) == 16
    assert alone.outputs == together.outputs
    assert len(set(alone.outputs["r0"])) > 4


@pytest.mark.parametrize("cache", ["static", "dynamic"])
def test_positions_begin_at_the_first_real_token(checkpoint: Checkpoint, cache: str):
    engine = build(f"static[max_batch_size=2,cache={cache}]", checkpoint("gpt2"))
    with forwards(engine) as seen:
        serve(engine, [request("a", [5, 6], 3), request("b", [5, 6, 7, 8, 9], 3)])
    if cache == "dynamic":  # else generate hands over a mask of four dimensions
        assert seen[0]["attention_mask"].tolist() == [[0, 0, 0, 1, 1], [1, 1, 1, 1, 1]]
    assert seen[0]["position_ids"][0, 3:].tolist() == [0, 1]
    assert seen[0]["position_ids"][1].tolist() == [0, 1, 2, 3, 4]
    assert [row["position_ids"].tolist() for row in seen[1:]] == [[[2], [5]], [[3], [6]]]


def test_left_padding_puts_prompts_at_the_right():
    padded = pad_left([[7, 8], [4, 5, 6]], 1, torch.device("cpu"))
    assert padded.input_ids.tolist() == [[1, 7, 8], [4, 5, 6]]
    assert padded.attention_mask.tolist() == [[0, 1, 1], [1, 1, 1]]


@pytest.mark.parametrize("deliver", ["stream", "batch"])
def test_ledger_counts_every_position_that_the_model_saw(checkpoint: Checkpoint, deliver: str):
    engine = build(f"static[max_batch_size=3,deliver={deliver}]", checkpoint("llama"))
    lengths, answers = [2, 7, 4, 1], [2, 5, 10, 3]
    mixed = [
        request(f"r{i}", p, n)
        for i, (p, n) in enumerate(zip(prompts(lengths), answers, strict=True))
    ]
    with forwards(engine) as seen:
        record = serve(engine, mixed)
    assert [step.executed for step in record.steps] == [row["embedded"].numel() for row in seen]
    assert sum(step.prompt for step in record.steps) == sum(lengths)
    assert sum(step.output for step in record.steps) == sum(answers) - 4
    assert sum(step.padding for step in record.steps) == (3 * 7 - 13) + (8 + 5)
    assert sum(len(tokens) for tokens in record.outputs.values()) == sum(answers)


def test_forced_lengths_are_exact_alone_and_together(checkpoint: Checkpoint):
    asked = [request(f"r{i}", p, 32) for i, p in enumerate(prompts([3 + i % 4 for i in range(16)]))]
    for spec in ("sequential", "static[max_batch_size=16]", "dynamic[max_batch_size=5]"):
        record = serve(build(spec, checkpoint("llama")), asked)
        assert [len(record.outputs[r.request_id]) for r in asked] == [32] * 16
        assert {f.finish_reason for f in record.finishes.values()} == {"length"}


def test_rows_of_one_batch_have_their_own_lengths(checkpoint: Checkpoint):
    asked = [request(f"r{n}", p, n) for n, p in zip((2, 5, 10), prompts([4, 4, 4]), strict=True)]
    record = serve(build("static[max_batch_size=3]", checkpoint("llama")), asked)
    assert {name: len(tokens) for name, tokens in record.outputs.items()} == {
        "r2": 2,
        "r5": 5,
        "r10": 10,
    }


def test_the_models_own_eos_ends_an_answer_only_when_asked(checkpoint: Checkpoint):
    engine = build("static[max_batch_size=2]", checkpoint("llama"))
    (prompt,) = prompts([6])
    free = serve(engine, [request("r", prompt, 20)]).outputs["r"]
    eos = free[7]
    first = free.index(eos)
    engine._setup = replace(engine._setup, eos_token_ids=(eos,))
    record = serve(
        engine,
        [request("ends", prompt, 20, ignore_eos=False), request("goes on", prompt, 20)],
    )
    assert record.outputs == {"ends": free[: first + 1], "goes on": free}
    assert record.finishes["ends"].finish_reason == "stop"


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_no_bound_of_its_own_runs_to_the_context(checkpoint: Checkpoint, family: str):
    """The row that ended long ago is computed past the context, where gpt2 has no position."""
    asked = [request("open", prompts([5])[0], None), request("late", prompts([90])[0], 6)]
    record = serve(build("static[max_batch_size=2]", checkpoint(family)), asked)
    assert {name: len(tokens) for name, tokens in record.outputs.items()} == {"open": 91, "late": 6}
    alone = serve(build("sequential", checkpoint(family)), asked)
    assert alone.outputs == record.outputs


def test_keyed_sampling_does_not_depend_on_the_batch(checkpoint: Checkpoint):
    samplings = [
        GREEDY,
        Sampling(1.5, seed=1),
        Sampling(1.5, seed=2),
        Sampling(0.7, top_p=0.9, top_k=9),
    ]
    asked = [
        request(f"r{i}", p, 12, sampling=s)
        for i, (p, s) in enumerate(zip(prompts([3, 6, 6, 2]), samplings, strict=True))
    ]
    alone = serve(build("sequential", checkpoint("llama")), asked)
    together = serve(build("static[max_batch_size=4]", checkpoint("llama")), asked)
    assert alone.outputs == together.outputs
    greedy = serve(
        build("sequential", checkpoint("llama")),
        [request(r.request_id, r.prompt_token_ids, 12) for r in asked],
    )
    assert greedy.outputs["r0"] == alone.outputs["r0"]
    assert all(greedy.outputs[f"r{i}"] != alone.outputs[f"r{i}"] for i in (1, 2, 3))


def test_generation_settings_of_a_checkpoint_are_not_used(checkpoint: Checkpoint, tmp_path: Path):
    for path in checkpoint("llama").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "generation_config.json").write_text(
        '{"do_sample": true, "temperature": 9.0, "repetition_penalty": 1.9, "eos_token_id": [2, 5]}'
    )
    asked = [request("r", prompts([4])[0], 20)]
    engine = build("sequential", tmp_path)
    assert engine.describe().model.eos_token_ids == (2, 5)
    assert (
        serve(engine, asked).outputs
        == serve(build("sequential", checkpoint("llama")), asked).outputs
    )


def test_memory_bounds_the_cache_of_a_batch(checkpoint: Checkpoint):
    per_token = 2 * 2 * 2 * 8 * 4
    engine = build(f"static[max_batch_size=8,kv_memory={40 * per_token}]", checkpoint("llama"))
    assert engine.describe().kv_tokens == 40
    record = serve(engine, [request(f"r{i}", p, 6) for i, p in enumerate(prompts([5] * 6))])
    assert [step.useful_rows for step in record.steps if step.prompt] == [4, 2]
    assert max(step.tokens_reserved for step in record.steps) == 40


def test_stop_from_another_thread_ends_the_run(checkpoint: Checkpoint):
    engine = build("static[max_batch_size=2]", checkpoint("llama"))
    reached, stopped = threading.Event(), threading.Event()

    def on_step(step: int) -> None:
        if step == 2:
            reached.set()
            assert stopped.wait(10)

    def stopper() -> None:
        assert reached.wait(10)
        engine.stop()
        stopped.set()

    thread = threading.Thread(target=stopper)
    thread.start()
    asked = [request(f"r{i}", p, 60) for i, p in enumerate(prompts([4, 5, 6]))]
    record = serve(engine, asked, Record(on_step))
    thread.join()
    assert len(record.steps) == 3
    assert {finish.status for finish in record.finishes.values()} == {"cancelled"}
    assert len(record.finishes) == 3
    again = serve(engine, [request("r", prompts([4])[0], 3)])
    assert again.finishes["r"].status == "ok"


def test_describe_gives_every_setting_in_force(checkpoint: Checkpoint):
    info = build("dynamic[max_delay_ms=20]", checkpoint("llama"), kv_memory=2**20).describe()
    assert info.name == "dynamic"
    assert info.slots == 16
    assert info.settings["max_delay_ms"] == 20.0
    assert info.settings["kv_memory"] == 2**20
    assert info.settings["attention"] == "sdpa"
    assert info.max_model_len == 96
    assert None not in info.settings.values()
    assert build("sequential", checkpoint("llama")).describe().slots == 1


def test_an_encoder_is_refused(tmp_path: Path):
    from transformers import BertConfig, BertLMHeadModel

    config = BertConfig(
        vocab_size=64,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        is_decoder=False,
    )
    BertLMHeadModel(config).save_pretrained(tmp_path)
    with pytest.raises(CbbenchError, match="is an encoder"):
        build("sequential", tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_cuda_serves_exact_lengths_with_tokens_on_the_host(dtype: str):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    engine = build("static[max_batch_size=4]", "tiny", device="cuda", dtype=dtype)
    asked = [request(f"r{i}", p, 20 + i) for i, p in enumerate(prompts([9, 30, 4, 17], 4096))]
    record = serve(engine, asked)
    assert [len(record.outputs[r.request_id]) for r in asked] == [20, 21, 22, 23]
    assert all(step.end_s > step.start_s for step in record.steps)
    if dtype == "float32":
        alone = serve(build("sequential", "tiny", device="cuda", dtype=dtype), asked)
        assert sum(alone.outputs[name] == record.outputs[name] for name in alone.outputs) >= 3


def test_tiny_in_bfloat16_gives_exact_lengths():
    engine = build("static[max_batch_size=2]", "tiny", dtype="bfloat16")
    record = serve(engine, [request("a", range(50, 60), 4), request("b", range(90, 95), 6)])
    assert {name: len(tokens) for name, tokens in record.outputs.items()} == {"a": 4, "b": 6}
    assert load_model(BuildContext(dtype="bfloat16"), "sdpa").info.kv_bytes_per_token == 8192
