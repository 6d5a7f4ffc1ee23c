"""A model to run, and a small driver that plays the loop with schedules of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from engines.loop.executors.torch_model import load_for_loop  # noqa: E402
from engines.models.load import LoadedModel  # noqa: E402
from engines.registry import BuildContext  # noqa: E402


@pytest.fixture(scope="session")
def load_family(checkpoint: Callable[[str], Path]) -> Callable[..., LoadedModel]:
    """`load_family(family, dtype="float32")`, loaded once, with paged attention."""
    loaded: dict[tuple[str, str], LoadedModel] = {}

    def load(family: str, dtype: str = "float32") -> LoadedModel:
        if (family, dtype) not in loaded:
            context = BuildContext(str(checkpoint(family)), device="cpu", dtype=dtype, threads=1)
            loaded[family, dtype] = load_for_loop(context, "gathered")
        return loaded[family, dtype]

    return load


@pytest.fixture(scope="session")
def own_logits() -> Callable[..., object]:
    """`own_logits(loaded, tokens)`: [T, vocabulary] by the model's own eager attention."""

    def compute(loaded: LoadedModel, tokens: list[int]) -> object:
        before = loaded.model.config._attn_implementation
        loaded.model.set_attn_implementation("eager")
        with torch.inference_mode():
            positions = torch.arange(len(tokens))[None]
            logits = loaded.model(
                input_ids=torch.tensor([tokens]), position_ids=positions, use_cache=False
            ).logits[0]
        loaded.model.set_attn_implementation(before)
        return logits.float()

    return compute
