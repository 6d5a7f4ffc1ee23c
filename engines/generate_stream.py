"""Runs one batch through transformers `generate` and hands out its tokens step by step.

Left padding, greedy choice (or keyed noise, the same as in the loop), stopping row by row. Holds
no requests and keeps no times; it calls back once a forward pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.utils.hooks import RemovableHandle
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    StoppingCriteriaList,
)

from engines.admission import stop_ids
from engines.api import Request
from engines.generate_serving import BatchFailed, OnTokens
from engines.loop.executors.sampling import choose_tokens
from engines.models.load import LoadedModel


@dataclass(frozen=True, slots=True)
class PaddedPrompts:
    """`input_ids` and `attention_mask`, both [rows, width]; prompts stand at the right."""

    input_ids: torch.Tensor
    attention_mask: torch.Tensor


def pad_left(prompts: Sequence[Sequence[int]], pad_id: int, device: torch.device) -> PaddedPrompts:
    """Columns of `pad_id`, masked out, before the shorter prompts."""
    width = max(len(prompt) for prompt in prompts)
    ids = [[pad_id] * (width - len(prompt)) + list(prompt) for prompt in prompts]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return PaddedPrompts(torch.tensor(ids, device=device), torch.tensor(mask, device=device))


class GeneratePacker:
    """Makes batches for one model.

    A checkpoint's own generation settings (temperature, penalties) would make its answers differ
    from those of other engines, so they are dropped from the loaded model.
    """

    def __init__(self, loaded: LoadedModel, cache: str = "static") -> None:
        self._model = loaded.model
        self._cache = cache
        self._model.generation_config = GenerationConfig()
        self._device = loaded.device
        self._max_model_len = loaded.info.max_model_len
        special = loaded.info.special_token_ids
        self._pad_id = special[0] if special else 0
        self._eos_token_ids = loaded.info.eos_token_ids

    def pack(self, requests: Sequence[Request]) -> GenerateBatch:
        prompts = [request.prompt_token_ids for request in requests]
        padded = pad_left(prompts, self._pad_id, self._device)
        return GenerateBatch(
            self._model,
            padded,
            requests,
            self._pad_id,
            self._max_model_len,
            self._cache,
            self._eos_token_ids,
        )


class GenerateBatch:
    """One call of `generate`."""

    def __init__(
        self,
        model: PreTrainedModel,
        padded: PaddedPrompts,
        requests: Sequence[Request],
        pad_id: int,
        max_model_len: int,
        cache: str,
        eos_token_ids: tuple[int, ...] = (),
    ) -> None:
        self._model = model
        self._cache = cache
        self._eos_token_ids = eos_token_ids
        self._padded = padded
        self._requests = requests
        self._pad_id = pad_id
        self._max_model_len = max_model_len

    def run(self, max_new_tokens: int, on_tokens: OnTokens) -> None:
        """As `generate_serving.PackedBatch` has it; the tokens are on the host by then."""
        width = self._padded.input_ids.shape[1]
        try:
            with torch.inference_mode(), self._positions_in_range(width + max_new_tokens):
                self._model.generate(
                    input_ids=self._padded.input_ids,
                    attention_mask=self._padded.attention_mask,
                    generation_config=self._config(max_new_tokens),
                    logits_processor=LogitsProcessorList(self._processors(width)),
                    stopping_criteria=StoppingCriteriaList([_RowStopping(on_tokens)]),
                )
        except torch.OutOfMemoryError as error:
            torch.cuda.empty_cache()
            raise BatchFailed(
                f"a batch of {len(self._requests)} rows did not fit into the device's memory; "
                "lower max_batch_size or kv_memory"
            ) from error

    def _config(self, max_new_tokens: int) -> GenerationConfig:
        return GenerationConfig(
            max_new_tokens=max_new_tokens,
            do_sample=False,
            use_cache=True,
            cache_implementation=self._cache,
            disable_compile=True,
            pad_token_id=self._pad_id,
        )

    def _processors(self, width: int) -> list[_Chooser]:
        """None where `generate`'s own greedy choice is what all rows ask for."""
        if any(r.sampling.temperature > 0 or r.min_tokens for r in self._requests):
            return [_Chooser(self._requests, width, self._eos_token_ids)]
        return []

    @contextmanager
    def _positions_in_range(self, columns: int) -> Iterator[None]:
        """Holds ended rows, whose positions still count up, at the context's last position.

        A live row never gets there. Without this a table of learned positions is overrun.
        """
        if columns <= self._max_model_len:
            yield
            return
        handle = _clamp_positions(self._model, self._max_model_len - 1)
        try:
            yield
        finally:
            handle.remove()


def _clamp_positions(model: PreTrainedModel, last: int) -> RemovableHandle:
    def clamp(
        module: torch.nn.Module, args: tuple[object, ...], inputs: dict[str, object]
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        positions = inputs.get("position_ids")
        if isinstance(positions, torch.Tensor):
            inputs["position_ids"] = positions.clamp(max=last)
        return args, inputs

    handle: RemovableHandle = model.register_forward_pre_hook(clamp, with_kwargs=True)
    return handle


class _RowStopping:
    """A stopping criterion that reads each new column and asks which rows have ended."""

    def __init__(self, on_tokens: OnTokens) -> None:
        self._on_tokens = on_tokens

    def __call__(self, input_ids: torch.Tensor, scores: object) -> torch.Tensor:
        tokens: list[int] = input_ids[:, -1].tolist()  # on CUDA this waits for the step
        return torch.tensor(self._on_tokens(tokens), device=input_ids.device)


class _Chooser:
    """A logits processor that leaves only the token that the loop would choose too."""

    def __init__(
        self, requests: Sequence[Request], width: int, eos_token_ids: tuple[int, ...]
    ) -> None:
        self._samplings = [request.sampling for request in requests]
        self._ids = [request.request_id for request in requests]
        self._lengths = [len(request.prompt_token_ids) for request in requests]
        self._width = width
        self._stop_ids = [stop_ids(request, eos_token_ids) for request in requests]
        self._min_tokens = [request.min_tokens for request in requests]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        step = input_ids.shape[1] - self._width
        positions = [length + step for length in self._lengths]
        forbidden = [
            ids if step < least else ()
            for ids, least in zip(self._stop_ids, self._min_tokens, strict=True)
        ]
        tokens = choose_tokens(scores, self._samplings, self._ids, positions, forbidden)
        chosen = torch.full_like(scores, float("-inf"))
        return chosen.scatter_(1, tokens[:, None], 0.0)
