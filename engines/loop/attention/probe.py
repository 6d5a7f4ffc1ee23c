"""Before a model serves: does it give through the paged cache what it gives by itself?

Runs random tokens once with the model's own eager attention, and once in chunks and decodes of
two sequences mixed over shuffled blocks; refuses the model when the logits disagree. It finds a
model that ignores the positions it is given, mixes up neighbours in the packed row, or hides a
mask; it says nothing about how good the model is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch
from transformers import PreTrainedModel

from engines.api import GREEDY, CbbenchError
from engines.loop.attention.backend import AttentionBackend
from engines.loop.attention.cache import LayerShape, PagedCache
from engines.loop.attention.interface import (
    ATTENTION_NAME,
    CachedStep,
    discover_layers,
    run_packed,
)
from engines.loop.executors.api import Batch, Row
from engines.loop.executors.packing import pack

# Their frequencies depend on the longest position in the packed row, that is on the neighbours.
_BENT_ROPE_TYPES: Final = frozenset({"dynamic", "longrope"})
_BLOCK_SIZE: Final = 4
# New tokens of the two sequences in each step: fresh, chunk beside fresh, decode beside chunk,
# two decodes, chunk beside decode.
_STEPS: Final = ((11, 0), (13, 10), (1, 9), (1, 1), (4, 1))
# Largest difference of logits, as a share of the largest logit. Agreement is about 1e-6 in
# float32; in half precision rounding alone is some hundredths.
_TOLERANCE: Final = {torch.float32: 1e-4, torch.float64: 1e-4}
_TOLERANCE_HALF: Final = 0.06


def probe(model: PreTrainedModel, name: str, backend: AttentionBackend) -> float:
    """The largest difference as a share of the largest logit. Leaves the model as it was.

    Raises `CbbenchError` naming the model, and the difference if it is too large.
    """
    _refuse_bent_rope(model, name)
    layers = _checked_layers(model, name)
    rng = np.random.default_rng(7)
    lengths = [sum(step[i] for step in _STEPS) for i in range(2)]
    vocabulary = model.config.get_text_config().vocab_size
    sequences = [rng.integers(0, vocabulary, n).tolist() for n in lengths]
    own = [_eager_logits(model, tokens) for tokens in sequences]
    paged = _paged_logits(model, layers, backend, sequences, rng)
    largest = max(float(logits.abs().max()) for logits in own)
    difference = max(float((a - b).abs().max()) for a, b in zip(own, paged, strict=True))
    limit = _TOLERANCE.get(model.dtype, _TOLERANCE_HALF)
    if not difference <= limit * largest:  # also refuses NaN
        raise CbbenchError(
            f"model {name!r} does not work with the paged cache: its logits differ by up to "
            f"{difference:.3g} (largest logit {largest:.3g}, limit {limit:g} of it) from its own "
            "eager attention; serve it with sequential, static or dynamic instead"
        )
    return difference / largest


def _refuse_bent_rope(model: PreTrainedModel, name: str) -> None:
    config = model.config.get_text_config()
    for found in _rope_types(getattr(config, "rope_parameters", None)):
        if found in _BENT_ROPE_TYPES:
            raise CbbenchError(
                f"model {name!r} has rope type {found!r}, which depends on the longest request of "
                "a step, so that one request would bend the others; serve it with sequential, "
                "static or dynamic instead"
            )


def _rope_types(parameters: Any) -> Iterator[str]:
    """The config holds one mapping, or one for each type of layer."""
    if not isinstance(parameters, Mapping):
        return
    for key in ("rope_type", "type"):
        if isinstance(parameters.get(key), str):
            yield parameters[key]
    for nested in parameters.values():
        yield from _rope_types(nested)


def _checked_layers(model: PreTrainedModel, name: str) -> Mapping[int, LayerShape]:
    """What the layers keep; refuses a model in which one does not call, or hides its mask."""
    try:
        layers = discover_layers(model)
    except (RuntimeError, TypeError, ValueError, AttributeError, KeyError, AssertionError) as error:
        raise CbbenchError(
            f"model {name!r} cannot run on the paged cache ({type(error).__name__}: {error}); "
            "serve it with sequential, static or dynamic instead"
        ) from error
    config = model.config.get_text_config()
    count = int(config.num_hidden_layers)
    if sorted(layers) != list(range(count)):
        raise CbbenchError(
            f"model {name!r} has {count} layers, of which {len(layers)} called paged attention; "
            "all must; serve it with sequential, static or dynamic instead"
        )
    for index, kind in enumerate((getattr(config, "layer_types", None) or [])[:count]):
        expects_window = {"full_attention": False, "sliding_attention": True}.get(kind)
        if expects_window is None or expects_window != (layers[index].window is not None):
            raise CbbenchError(
                f"layer {index} of model {name!r} is a {kind} and asks for a window of "
                f"{layers[index].window}; paged attention knows full and sliding attention only"
            )
    return layers


def _eager_logits(model: PreTrainedModel, tokens: list[int]) -> torch.Tensor:
    """[T, vocabulary] by the model's own attention, without a cache."""
    model.set_attn_implementation("eager")
    try:
        input_ids = torch.tensor([tokens], device=model.device)
        positions = torch.arange(len(tokens), device=model.device)[None]
        with torch.inference_mode():
            output = model(input_ids=input_ids, position_ids=positions, use_cache=False)
        logits: torch.Tensor = output.logits[0].float()
        return logits
    finally:
        model.set_attn_implementation(ATTENTION_NAME)


def _paged_logits(
    model: PreTrainedModel,
    layers: Mapping[int, LayerShape],
    backend: AttentionBackend,
    sequences: list[list[int]],
    rng: np.random.Generator,
) -> list[torch.Tensor]:
    """[T, vocabulary] of both sequences, run in the mixed steps."""
    blocks = [-(-len(tokens) // _BLOCK_SIZE) for tokens in sequences]
    shuffled = rng.permutation(sum(blocks)).tolist()
    tables = [shuffled[: blocks[0]], shuffled[blocks[0] :]]
    cache = PagedCache(layers, sum(blocks), _BLOCK_SIZE, model.device)
    done = [0, 0]
    parts: list[list[torch.Tensor]] = [[], []]
    for number, counts in enumerate(_STEPS):
        rows = [
            Row(str(i), sequences[i][done[i] : done[i] + n], done[i], tables[i], True, GREEDY)
            for i, n in enumerate(counts)
            if n
        ]
        packed = pack(Batch(number, rows), _BLOCK_SIZE, sum(blocks), sum(map(len, sequences)))
        step = CachedStep(
            cache, torch.from_numpy(packed.slots).to(model.device), backend.begin(packed)
        )
        logits = run_packed(
            model,
            torch.from_numpy(packed.input_ids).to(model.device)[None],
            torch.from_numpy(packed.positions).to(model.device)[None],
            step,
            None,
        ).float()
        pieces = iter(torch.split(logits, packed.query_lens.tolist()))
        for i, n in enumerate(counts):
            if n:
                parts[i].append(next(pieces))
                done[i] += n
    return [torch.cat(part) for part in parts]
