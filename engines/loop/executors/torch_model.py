"""Computes a loop's steps with a transformers model over a paged cache.

The packed step goes through the unmodified model as one row; attention is answered by
`engines.loop.attention`. It decides nothing, allocates no blocks and keeps no request's state but
the host copies of those that the loop has swapped out. It proposes no drafts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter

import torch

from engines.api import CbbenchError, RequestId
from engines.loop.attention.cache import HostStore, LayerShape, PagedCache
from engines.loop.attention.choose import make_backend
from engines.loop.attention.interface import (
    ATTENTION_NAME,
    CachedStep,
    discover_layers,
    register_attention,
    run_packed,
)
from engines.loop.attention.probe import probe
from engines.loop.executors.api import Batch, PaddingRow, StepResult
from engines.loop.executors.packing import NOTHING, Ints, PackedBatch, pack
from engines.loop.executors.sampling import choose_tokens
from engines.models.load import LoadedModel, load_model
from engines.registry import BuildContext

Timer = Callable[[], float]


def load_for_loop(context: BuildContext, attention: str = "auto") -> LoadedModel:
    """Loads the model with paged attention and probes it with the backend that will serve.

    Raises `CbbenchError` for a model that cannot be loaded or that the probe refuses. The
    cache's bytes per token are those that the layers really ask for.
    """
    register_attention()
    loaded = load_model(context, ATTENTION_NAME)
    probe(loaded.model, loaded.info.name, make_backend(attention, loaded.device))
    layers = discover_layers(loaded.model).values()
    per_token = sum(layer.bytes_per_token for layer in layers)
    loaded.info = replace(loaded.info, kv_bytes_per_token=per_token)
    return loaded


class TorchExecutor:
    """See the module. Fills the pool with zeros and compiles its kernels when it is made.

    `attention` is a name of `engines.loop.attention.choose`. `submit` and `result` belong to one
    thread. Raises `CbbenchError` when the pool does not fit the device.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        num_blocks: int,
        block_size: int,
        attention: str = "auto",
        timer: Timer = perf_counter,
    ) -> None:
        self._loaded = loaded
        self._device = loaded.device
        self._num_blocks = num_blocks
        self._block_size = block_size
        self._timer = timer
        self._backend = make_backend(attention, loaded.device)
        layers = discover_layers(loaded.model)
        self._cache = self._make_cache(dict(layers))
        self._host = HostStore(self._cache)
        self._warm_up()

    @property
    def attention(self) -> str:
        """The backend in force."""
        return self._backend.name

    @property
    def num_host_copies(self) -> int:
        """Requests whose keys and values are kept on the host."""
        return len(self._host)

    def submit(self, batch: Batch) -> TorchStep:
        """Starts the step: on a CPU it is done on return, on a GPU it is under way."""
        _refuse_lookahead(batch)
        started = self._timer()
        self._copy(batch)
        copied = self._timer()
        step = TorchStep(len(batch.rows), NOTHING, None, self._timer, copied - started)
        if batch.rows or batch.padding:
            self._compute(batch, step)
        return step

    def drop(self, request_id: RequestId) -> None:
        self._host.drop(request_id)

    def reset(self) -> None:
        """Forgets host copies. The pool keeps its bytes, which no table leads to any more."""
        self._host.clear()

    def close(self) -> None:
        """Frees the pool and the host copies; the model belongs to who loaded it."""
        self._host.clear()
        self._cache.keys.clear()
        self._cache.values.clear()

    def _make_cache(self, layers: dict[int, LayerShape]) -> PagedCache:
        try:
            return PagedCache(layers, self._num_blocks, self._block_size, self._device)
        except RuntimeError as error:  # torch's out-of-memory errors, of CPU and GPU
            per_token = sum(layer.bytes_per_token for layer in layers.values())
            size = per_token * self._block_size * (self._num_blocks + 1)
            raise CbbenchError(
                f"a pool of {self._num_blocks} blocks of {self._block_size} tokens takes {size} "
                f"bytes, which {self._device} does not have free; give less kv_memory"
            ) from error

    def _compute(self, batch: Batch, step: TorchStep) -> None:
        started = self._timer()
        packed = pack(batch, self._block_size, self._num_blocks, self._loaded.info.max_model_len)
        inputs = StepInputs.of(packed, self._device)
        paged = CachedStep(self._cache, inputs.slots, self._backend.begin(packed))
        prepared = self._timer()
        logits = run_packed(
            self._loaded.model, inputs.input_ids, inputs.positions, paged, inputs.last_indices
        )
        step.sampled = packed.sampled
        step.tokens = self._choose(batch, packed, logits)
        step.prepare_s = prepared - started
        step.launch_s = self._timer() - prepared

    def _copy(self, batch: Batch) -> None:
        if not (batch.swap_out or batch.swap_in):
            return
        with torch.inference_mode():
            for copy in batch.swap_out:
                self._host.put(copy.request_id, copy.blocks, copy.num_tokens)
            for copy in batch.swap_in:
                self._host.bring_back(copy.request_id, copy.blocks, copy.num_tokens)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # so that the copies' time is theirs

    def _choose(self, batch: Batch, packed: PackedBatch, logits: torch.Tensor) -> torch.Tensor:
        rows = [batch.rows[i] for i in packed.sampled]
        with torch.inference_mode():
            return choose_tokens(
                logits,
                [row.sampling for row in rows],
                [row.request_id for row in rows],
                [row.start + len(row.tokens) for row in rows],
                [row.forbidden_next for row in rows],
            )

    def _warm_up(self) -> None:
        """Runs a fresh prompt, a chunk and a decode in the scratch block."""
        size = self._block_size
        kinds = (PaddingRow(size + 1, 0), PaddingRow(2, size), PaddingRow(1, size))
        for padding in (kinds, kinds[-1:]):
            self.submit(Batch(step=-1, rows=(), padding=padding)).result()


@dataclass(frozen=True, slots=True)
class StepInputs:
    """A packed step on the model's device."""

    input_ids: torch.Tensor  # [1, T]
    positions: torch.Tensor  # [1, T]
    slots: torch.Tensor  # [T]
    last_indices: torch.Tensor  # [N]

    @classmethod
    def of(cls, packed: PackedBatch, device: torch.device) -> StepInputs:
        """One copy to the device for all four."""
        arrays = (packed.input_ids, packed.positions, packed.slots, packed.last_indices)
        parts = [torch.from_numpy(array) for array in arrays]
        if device.type != "cpu":
            joined = torch.cat(parts).pin_memory().to(device, non_blocking=True)
            parts = list(torch.split(joined, [len(part) for part in parts]))
        ids, positions, slots, last = parts
        return cls(ids[None], positions[None], slots, last)


@dataclass(slots=True)
class TorchStep:
    """A submitted step. Waiting for its tokens is the only synchronisation with the device."""

    num_rows: int
    sampled: Ints  # [N] rows that get a token
    tokens: torch.Tensor | None  # [N] on the device
    timer: Timer
    copy_s: float
    prepare_s: float = 0.0
    launch_s: float = 0.0

    def result(self) -> StepResult:
        """Waits. `compute_s` is the time in `submit` and here, not what lies between."""
        started = self.timer()
        tokens: list[list[int]] = [[] for _ in range(self.num_rows)]
        if self.tokens is not None:
            for row, token in zip(self.sampled, self.tokens.tolist(), strict=True):
                tokens[row].append(token)
        return StepResult(
            tokens=tokens,
            prepare_s=self.prepare_s,
            compute_s=self.launch_s + self.timer() - started,
            copy_s=self.copy_s,
        )


def _refuse_lookahead(batch: Batch) -> None:
    for row in batch.rows:
        if row.lookahead > 0:
            raise CbbenchError(
                f"request {row.request_id!r} has a lookahead of {row.lookahead}, and the torch "
                "executor proposes no drafts; run it with lookahead 0"
            )
