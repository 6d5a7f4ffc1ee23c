from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

from engines.api import GREEDY, CbbenchError  # noqa: E402
from engines.loop.attention.backend import LayerCall  # noqa: E402
from engines.loop.attention.choose import make_backend  # noqa: E402
from engines.loop.attention.reference import ReferenceAttention  # noqa: E402
from engines.loop.executors.api import Batch, PaddingRow, Row  # noqa: E402
from engines.loop.executors.packing import PackedBatch, pack  # noqa: E402

CPU = torch.device("cpu")
FAST = ["gathered", "compiled"]
Shapes = list[tuple[int, int]]  # (start, new tokens) of each sequence


def packed_step(shapes: Shapes, block_size: int, rng: np.random.Generator) -> PackedBatch:
    needs = [-(-(start + n) // block_size) for start, n in shapes]
    blocks = iter(rng.permutation(sum(needs)).tolist())
    rows = [
        Row(f"r{i}", [1] * n, start, [next(blocks) for _ in range(need)], True, GREEDY)
        for i, ((start, n), need) in enumerate(zip(shapes, needs, strict=True))
    ]
    padding = [PaddingRow(1, 5), PaddingRow(2, 0)]
    return pack(Batch(0, rows, padding=padding), block_size, sum(needs), 10_000)


def layer_call(
    packed: PackedBatch,
    heads: tuple[int, int],
    dims: tuple[int, int],
    dtype: torch.dtype = torch.float32,
    window: int | None = None,
    softcap: float | None = None,
    sinks: bool = False,
) -> LayerCall:
    """Random tensors, the new tokens' keys and values already in the cache."""
    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(dtype)

    (kv_heads, query_heads), (key_dim, value_dim) = heads, dims
    num_slots = (int(packed.tables.max()) + 1) * packed.block_size
    keys, values = draw(num_slots, kv_heads, key_dim), draw(num_slots, kv_heads, value_dim)
    slots = torch.from_numpy(packed.slots)
    return LayerCall(
        query=draw(packed.num_tokens, query_heads, key_dim),
        key=keys[slots],
        value=values[slots],
        key_cache=keys,
        value_cache=values,
        scaling=key_dim**-0.5,
        window=window,
        softcap=softcap,
        sinks=draw(query_heads) if sinks else None,
    )


def backend(name: str):
    if name == "compiled":
        pytest.importorskip("numba")
    return make_backend(name, CPU)


def test_the_reference_is_causal_attention_of_a_fresh_prompt():
    packed = pack(Batch(0, [Row("r", [1] * 9, 0, [2, 0, 1], True, GREEDY)]), 4, 3, 99)
    call = layer_call(packed, (2, 4), (8, 8))
    query, key, value = (x.transpose(0, 1)[None] for x in (call.query, call.key, call.value))
    expected = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    got = ReferenceAttention().begin(packed).attend(call)
    assert torch.allclose(got, expected[0].transpose(0, 1), atol=1e-6)


def test_the_reference_sees_a_window_of_keys_and_its_sinks_take_weight():
    packed = pack(Batch(0, [Row("r", [1], 9, [0, 1, 2], True, GREEDY)]), 4, 3, 99)
    call = layer_call(packed, (1, 1), (4, 4), window=1)
    only_itself = ReferenceAttention().begin(packed).attend(call)
    assert torch.allclose(only_itself[0], call.value[0], atol=1e-6)
    with_sink = layer_call(packed, (1, 1), (4, 4), window=1, sinks=True)
    score = float((call.query[0, 0] @ call.key[0, 0]) * call.scaling)
    share = 1 / (1 + np.exp(float(with_sink.sinks[0]) - score))
    got = ReferenceAttention().begin(packed).attend(with_sink)
    assert torch.allclose(got[0], with_sink.value[0] * share, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(
    shapes=st.lists(st.tuples(st.integers(0, 40), st.sampled_from([1, 1, 2, 7])), min_size=1),
    block_size=st.integers(1, 17),
    heads=st.sampled_from([(1, 1), (2, 4), (1, 8), (3, 3)]),
    dims=st.sampled_from([(8, 8), (64, 64), (128, 16), (20, 12)]),
    window=st.sampled_from([None, 1, 6, 1000]),
    softcap=st.sampled_from([None, None, 3.0]),
    sinks=st.sampled_from([False, False, True]),
    seed=st.integers(0, 99),
)
@pytest.mark.parametrize("name", FAST)
def test_fast_backends_agree_with_the_reference(
    name, shapes, block_size, heads, dims, window, softcap, sinks, seed
):
    packed = packed_step(shapes, block_size, np.random.default_rng(seed))
    call = layer_call(packed, heads, dims, window=window, softcap=softcap, sinks=sinks)
    expected = ReferenceAttention().begin(packed).attend(call)
    got = backend(name).begin(packed).attend(call)
    assert got.shape == expected.shape
    assert torch.allclose(got, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize(
    ("softcap", "sinks"), [(None, False), (4.0, False), (None, True), (4.0, True)]
)
def test_decodes_alone_agree_with_the_reference(name, softcap, sinks):
    rows = [Row("a", [1], 70, list(range(5)), True, GREEDY), Row("b", [1], 0, [5], True, GREEDY)]
    packed = pack(Batch(0, rows), 16, 6, 99)
    call = layer_call(packed, (2, 6), (64, 64), softcap=softcap, sinks=sinks)
    expected = ReferenceAttention().begin(packed).attend(call)
    assert torch.allclose(backend(name).begin(packed).attend(call), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_within_its_rounding(name, dtype):
    packed = packed_step([(30, 1), (0, 9), (3, 1), (12, 5)], 4, np.random.default_rng(0))
    call = layer_call(packed, (2, 4), (64, 64), dtype=dtype)
    expected = ReferenceAttention().begin(packed).attend(call)
    got = backend(name).begin(packed).attend(call)
    assert got.dtype == dtype
    assert torch.allclose(got.float(), expected.float(), atol=0.03, rtol=0)


@pytest.mark.parametrize("name", ["reference", *FAST])
def test_a_neighbours_nan_stays_with_the_neighbour(name):
    shapes = [(40, 1), (3, 1), (9, 4), (0, 6)]
    packed = packed_step(shapes, 4, np.random.default_rng(0))
    call = layer_call(packed, (2, 4), (8, 8))
    clean = backend(name).begin(packed).attend(call)
    sick = torch.from_numpy(packed.tables[: packed.table_offsets[1]]).long()
    slots = (sick[:, None] * 4 + torch.arange(4)).flatten()
    call.key_cache[slots] = float("nan")
    call.value_cache[slots] = float("nan")
    got = backend(name).begin(packed).attend(call)
    assert torch.equal(got[1:], clean[1:])
    assert got[0].isnan().all()


def test_auto_takes_the_compiled_backend_where_numba_is():
    try:
        import numba  # noqa: F401
    except ImportError:
        assert make_backend("auto", CPU).name == "gathered"
    else:
        assert make_backend("auto", CPU).name == "compiled"


def test_unknown_and_impossible_backends_are_refused():
    with pytest.raises(CbbenchError, match="unknown attention 'flash'; expected one of auto"):
        make_backend("flash", CPU)
    with pytest.raises(CbbenchError, match="'compiled' runs on a CPU only"):
        make_backend("compiled", torch.device("cuda"))


@pytest.mark.gpu
def test_gathered_agrees_with_the_reference_on_cuda():
    device = torch.device("cuda")
    packed = packed_step([(30, 1), (0, 9), (3, 1), (12, 5)], 4, np.random.default_rng(0))
    call = layer_call(packed, (2, 4), (64, 64))
    moved = LayerCall(
        *(x.to(device) for x in (call.query, call.key, call.value)),
        call.key_cache.to(device),
        call.value_cache.to(device),
        call.scaling,
    )
    expected = ReferenceAttention().begin(packed).attend(moved)
    got = make_backend("gathered", device).begin(packed).attend(moved)
    assert torch.allclose(got, expected, atol=1e-4, rtol=0)


FIRST_STEP = """
import torch
from tests_backends import backend, layer_call, np, packed_step

torch.set_num_threads(1)
packed = packed_step([(30, 1), (3, 1)], 4, np.random.default_rng(0))
step = backend("compiled").begin(packed)
before = torch.get_num_threads()
step.attend(layer_call(packed, (2, 4), (64, 64)))
print(before, torch.get_num_threads())
"""


def test_the_compiled_backends_first_step_leaves_torchs_threads_alone(tmp_path):
    """Numba starts its threads once a process, and OpenMP's number of them is torch's too."""
    pytest.importorskip("numba")
    (tmp_path / "tests_backends.py").write_text(Path(__file__).read_text())
    done = subprocess.run(
        [sys.executable, "-c", FIRST_STEP],
        cwd=tmp_path,
        env=os.environ | {"NUMBA_NUM_THREADS": "2", "NUMBA_THREADING_LAYER": "omp"},
        capture_output=True,
        text=True,
        check=False,
    )
    if "No threading layer could be loaded" in done.stderr:
        pytest.skip("numba has no OpenMP here")
    assert done.stdout.split() == ["1", "1"], done.stderr
