from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from engines.api import GREEDY, CbbenchError, Sampling  # noqa: E402
from engines.loop.executors.api import Batch, PaddingRow, Row, StepResult, SwapCopy  # noqa: E402
from engines.loop.executors.sampling import choose_tokens  # noqa: E402
from engines.loop.executors.torch_model import TorchExecutor, load_for_loop  # noqa: E402
from engines.models.load import LoadedModel  # noqa: E402
from engines.registry import BuildContext  # noqa: E402

NUM_BLOCKS = 200
CLEAR_GAP = 1e-3  # of the two highest logits: below it rounding may choose either
FAMILIES = ("llama", "qwen3", "mistral", "gpt2")
each_family = pytest.mark.parametrize("family", FAMILIES)


@dataclass
class Known:
    """A sequence of fixed tokens, fed piece by piece, and what the model says of each prefix."""

    name: str
    tokens: list[int]
    expected: list[int | None]  # the next token by the model's own attention, if it is clear
    done: int = 0
    table: list[int] = field(default_factory=list)


class Play:
    """Feeds sequences to an executor in any order, over any blocks, and checks every answer."""

    def __init__(self, executor: TorchExecutor, block_size: int, rng: np.random.Generator) -> None:
        self.executor, self.block_size, self.rng = executor, block_size, rng
        self.free = rng.permutation(NUM_BLOCKS).tolist()
        self.steps = count()

    def rows(self, work: list[tuple[Known, int]], sample: bool = True) -> list[Row]:
        rows = []
        for known, n in work:
            need = -(-(known.done + n) // self.block_size)
            known.table += [self.free.pop() for _ in range(need - len(known.table))]
            tokens = known.tokens[known.done : known.done + n]
            rows.append(Row(known.name, tokens, known.done, known.table, sample, GREEDY))
        return rows

    def step(self, work: list[tuple[Known, int]], **kinds: object) -> StepResult:
        batch = Batch(next(self.steps), self.rows(work), **kinds)
        result = self.executor.submit(batch).result()
        assert [len(tokens) for tokens in result.tokens] == [1] * len(work)
        for (known, n), tokens in zip(work, result.tokens, strict=True):
            known.done += n
            expected = known.expected[known.done - 1]
            assert expected is None or tokens == [expected], f"{known.name} at {known.done}"
        return result

    def swap_out(self, known: Known) -> SwapCopy:
        """The blocks go back, shuffled, so that others take and overwrite them."""
        copy = SwapCopy(known.name, list(known.table), known.done)
        self.free += known.table
        self.rng.shuffle(self.free)
        known.table = []
        return copy

    def swap_in(self, known: Known) -> SwapCopy:
        known.table = [self.free.pop() for _ in range(-(-known.done // self.block_size))]
        return SwapCopy(known.name, list(known.table), known.done)


@pytest.fixture(scope="session")
def make_known(own_logits: Callable[..., torch.Tensor]) -> Callable[..., list[Known]]:
    """`make_known(loaded, lengths, rng)`: sequences of random tokens with their answers."""

    def make(loaded: LoadedModel, lengths: list[int], rng: np.random.Generator) -> list[Known]:
        known = []
        for i, length in enumerate(lengths):
            tokens = rng.integers(3, loaded.info.vocab_size, length).tolist()
            best = own_logits(loaded, tokens).topk(2)
            clear = (best.values[:, 0] - best.values[:, 1] > CLEAR_GAP).tolist()
            answers = [
                a if c else None for a, c in zip(best.indices[:, 0].tolist(), clear, strict=True)
            ]
            assert sum(clear) > 0.9 * length, "the test would check next to nothing"
            known.append(Known(f"r{i}", tokens, answers))
        return known

    return make


def play_at_random(play: Play, sequences: list[Known], padding: bool, swaps: bool) -> None:
    """Random chunks and decodes of random subsets until every sequence is through."""
    rng, away = play.rng, set()
    while any(known.done < len(known.tokens) for known in sequences):
        out, back = [], []
        for known in sequences if swaps else ():
            if known.name in away and rng.random() < 0.5:
                back.append(known)
            elif known.name not in away and known.done and rng.random() < 0.15:
                out.append(known)
        kinds: dict[str, object] = {"swap_out": [play.swap_out(known) for known in out]}
        away |= {known.name for known in out}
        kinds["swap_in"] = [play.swap_in(known) for known in back]
        away -= {known.name for known in back}
        if padding:
            kinds["padding"] = [PaddingRow(1, int(rng.integers(0, 30))), PaddingRow(3, 0)]
        work = [
            (known, min(int(rng.choice([1, 1, 2, 5, 13])), len(known.tokens) - known.done))
            for known in rng.permutation(np.asarray(sequences, dtype=object))
            if known.name not in away and known.done < len(known.tokens) and rng.random() < 0.7
        ]
        play.step(work, **kinds)


@each_family
@pytest.mark.parametrize("block_size", [1, 3, 16])
def test_any_schedule_gives_the_models_own_tokens(load_family, make_known, family, block_size):
    rng = np.random.default_rng(block_size)
    loaded = load_family(family)
    executor = TorchExecutor(loaded, NUM_BLOCKS, block_size, "gathered")
    sequences = make_known(loaded, [1, 40, 7, 23, 31], rng)
    play_at_random(Play(executor, block_size, rng), sequences, padding=False, swaps=False)


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32), block_size=st.integers(1, 17))
@pytest.mark.parametrize("attention", ["reference", "gathered", "compiled"])
def test_padding_swaps_and_reused_blocks_change_nothing(
    load_family, make_known, attention, seed, block_size
):
    if attention == "compiled":
        pytest.importorskip("numba")
    rng = np.random.default_rng(seed)
    loaded = load_family("mistral" if seed % 2 else "llama")
    executor = TorchExecutor(loaded, NUM_BLOCKS, block_size, attention)
    sequences = make_known(loaded, rng.integers(1, 40, 4).tolist(), rng)
    play_at_random(Play(executor, block_size, rng), sequences, padding=True, swaps=True)
    assert executor.num_host_copies == 0 or any(not known.table for known in sequences)


def test_stale_keys_are_never_read_after_a_reset(load_family, make_known):
    loaded = load_family("llama")
    executor = TorchExecutor(loaded, NUM_BLOCKS, 4, "gathered")
    for tensor in (*executor._cache.keys.values(), *executor._cache.values.values()):
        tensor.fill_(float("nan"))  # the worst that could have been left behind
    executor.reset()
    rng = np.random.default_rng(0)
    play_at_random(Play(executor, 4, rng), make_known(loaded, [9, 30, 17], rng), False, False)


def test_a_swapped_request_comes_back_bit_for_bit_in_other_blocks(load_family, make_known):
    loaded, rng = load_family("llama"), np.random.default_rng(3)
    executor = TorchExecutor(loaded, NUM_BLOCKS, 4, "gathered")
    play = Play(executor, 4, rng)
    (known,) = make_known(loaded, [22], rng)
    play.step([(known, 21)])
    before = executor._cache.copy_out(known.table, 21)
    first_table = list(known.table)
    play.step([], swap_out=[play.swap_out(known)])
    assert executor.num_host_copies == 1
    other = make_known(loaded, [90], rng)[0]
    play.step([(other, 90)])
    play.step([], swap_in=[play.swap_in(known)])
    assert known.table != first_table
    assert executor.num_host_copies == 0
    after = executor._cache.copy_out(known.table, 21)
    for layer, (key, value) in before.items():
        assert torch.equal(key, after[layer][0])
        assert torch.equal(value, after[layer][1])
    play.step([(known, 1)])


def test_copies_out_come_before_copies_in_and_both_before_the_rows(load_family, make_known):
    loaded, rng = load_family("llama"), np.random.default_rng(4)
    executor = TorchExecutor(loaded, NUM_BLOCKS, 4, "gathered")
    play = Play(executor, 4, rng)
    first, second = make_known(loaded, [9, 9], rng)
    play.step([(first, 8), (second, 8)])
    play.step([], swap_out=[play.swap_out(second)])
    blocks = list(first.table)
    out = SwapCopy(first.name, blocks, first.done)
    back = SwapCopy(second.name, blocks, second.done)  # takes the very blocks that `first` leaves
    first.table, second.table = [], list(blocks)
    play.step([(second, 1)], swap_out=[out], swap_in=[back])
    play.step([(first, 1)], swap_in=[play.swap_in(first)])


def test_dropped_copies_and_a_reset_free_the_host(load_family, make_known):
    loaded, rng = load_family("llama"), np.random.default_rng(5)
    executor = TorchExecutor(loaded, NUM_BLOCKS, 4, "gathered")
    play = Play(executor, 4, rng)
    first, second = make_known(loaded, [8, 8], rng)
    play.step([(first, 7), (second, 7)])
    play.step([], swap_out=[play.swap_out(first), play.swap_out(second)])
    play.executor.drop("r0")
    play.executor.drop("never seen")
    assert executor.num_host_copies == 1
    with pytest.raises(RuntimeError, match=r"'r0'.*never swapped out"):
        play.step([], swap_in=[SwapCopy("r0", [0, 1], 7)])
    executor.reset()
    assert executor.num_host_copies == 0


def test_steps_without_rows_or_without_sampling_work(load_family, make_known):
    loaded, rng = load_family("llama"), np.random.default_rng(6)
    executor = TorchExecutor(loaded, NUM_BLOCKS, 4, "gathered")
    assert executor.submit(Batch(0, [])).result().tokens == []
    only_padding = Batch(1, [], padding=[PaddingRow(5, 0), PaddingRow(1, 200)])
    assert executor.submit(only_padding).result().tokens == []
    play = Play(executor, 4, rng)
    (known,) = make_known(loaded, [9], rng)
    result = executor.submit(Batch(2, play.rows([(known, 5)], sample=False))).result()
    assert result.tokens == [[]]
    known.done = 5
    play.step([(known, 4)])


def test_only_the_rows_that_sample_get_a_token(load_family, make_known):
    loaded, rng = load_family("gpt2"), np.random.default_rng(7)
    executor = TorchExecutor(loaded, NUM_BLOCKS, 4, "gathered")
    play = Play(executor, 4, rng)
    quiet, loud = make_known(loaded, [9, 6], rng)
    rows = play.rows([(quiet, 5)], sample=False) + play.rows([(loud, 6)])
    result = executor.submit(Batch(0, rows)).result()
    assert result.tokens == [[], [loud.expected[5]]]


def test_sampled_tokens_do_not_depend_on_who_else_is_in_the_batch(load_family):
    loaded = load_family("llama")
    warm = Sampling(temperature=1.0, top_k=20, seed=11)
    rows = [
        Row(f"r{i}", list(range(3 + i, 12 + 2 * i)), 0, list(range(10 * i, 10 * i + 9)), True, warm)
        for i in range(4)
    ]
    executor = TorchExecutor(loaded, NUM_BLOCKS, 4, "gathered")
    together = executor.submit(Batch(0, rows, padding=[PaddingRow(2, 3)])).result().tokens
    alone = [executor.submit(Batch(1, [row])).result().tokens[0] for row in rows]
    assert together == alone


def test_noise_is_keyed_by_the_position_of_the_new_token(load_family, own_logits):
    loaded = load_family("llama")
    warm = Sampling(temperature=3.0, seed=1)
    executor = TorchExecutor(loaded, NUM_BLOCKS, 4, "gathered")
    tokens = list(range(3, 23))
    logits = own_logits(loaded, tokens)
    for done in range(0, 20, 4):
        row = Row("me", tokens[done : done + 4], done, [9, 2, 7, 1, 5], True, warm)
        got = executor.submit(Batch(0, [row])).result().tokens[0]
        expected = choose_tokens(logits[done + 3 : done + 4], [warm], ["me"], [done + 4])
        assert got == expected.tolist()


def test_durations_add_up_to_the_step(load_family, make_known):
    ticks = count()
    loaded, rng = load_family("llama"), np.random.default_rng(8)
    executor = TorchExecutor(loaded, NUM_BLOCKS, 4, "gathered", timer=lambda: float(next(ticks)))
    play = Play(executor, 4, rng)
    (known,) = make_known(loaded, [9], rng)
    result = play.step([(known, 9)])
    assert (result.copy_s, result.prepare_s, result.compute_s) == (1.0, 1.0, 2.0)


def test_drafts_are_refused(load_family):
    executor = TorchExecutor(load_family("llama"), NUM_BLOCKS, 4, "gathered")
    row = Row("r7", [5], 0, [0], True, GREEDY, lookahead=2)
    with pytest.raises(CbbenchError, match="'r7' has a lookahead of 2"):
        executor.submit(Batch(0, [row]))


def test_a_pool_beyond_the_memory_is_refused_with_its_size(load_family):
    with pytest.raises(CbbenchError, match="pool of 1000000000000 blocks"):
        TorchExecutor(load_family("llama"), 10**12, 16, "gathered")


def test_bfloat16_stays_close_to_its_own_attention(load_family, own_logits):
    loaded = load_family("llama", "bfloat16")
    for attention in ("reference", "gathered", "auto"):
        executor = TorchExecutor(loaded, NUM_BLOCKS, 4, attention)
        tokens = list(range(3, 43))
        logits = own_logits(loaded, tokens)
        table = list(range(10, 20))
        executor.submit(Batch(0, [Row("r", tokens[:30], 0, table, False, GREEDY)])).result()
        for p in range(30, 40):
            row = Row("r", [tokens[p]], p, table, True, GREEDY)
            (token,) = executor.submit(Batch(p, [row])).result().tokens[0]
            spread = float(logits[p].max() - logits[p].min())
            assert float(logits[p].max() - logits[p, token]) < 0.05 * spread


def test_loading_counts_the_bytes_that_the_layers_keep(checkpoint):
    context = BuildContext(str(checkpoint("llama")), device="cpu", dtype="float32", threads=1)
    info = load_for_loop(context, "reference").info
    assert info.kv_bytes_per_token == 2 * 2 * 2 * 8 * 4  # layers, k and v, heads, dim, bytes


@pytest.mark.gpu
def test_the_gpu_gives_the_models_own_tokens_with_swaps(checkpoint, make_known):
    context = BuildContext(str(checkpoint("llama")), device="cuda", dtype="float32")
    loaded = load_for_loop(context)
    cpu = load_for_loop(BuildContext(context.model, device="cpu", dtype="float32"))
    rng = np.random.default_rng(0)
    executor = TorchExecutor(loaded, NUM_BLOCKS, 4)
    play_at_random(Play(executor, 4, rng), make_known(cpu, [30, 12, 25], rng), True, True)
