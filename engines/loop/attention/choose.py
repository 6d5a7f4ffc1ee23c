"""Which attention backend runs: the fastest that is installed, or the one asked for by name."""

from __future__ import annotations

from importlib.util import find_spec

import torch

from engines.api import CbbenchError
from engines.loop.attention.backend import AttentionBackend
from engines.loop.attention.gathered import GatheredAttention
from engines.loop.attention.reference import ReferenceAttention

ATTENTION_NAMES = ("auto", "compiled", "gathered", "reference")


def make_backend(name: str, device: torch.device) -> AttentionBackend:
    """`auto` is `compiled` on a CPU where numba is installed, else `gathered`.

    Raises `CbbenchError` for an unknown name and for `compiled` where it cannot run.
    """
    if name == "auto":
        name = "compiled" if _compiled_problem(device) is None else "gathered"
    if name == "reference":
        return ReferenceAttention()
    if name == "gathered":
        return GatheredAttention(device)
    if name == "compiled":
        return _compiled(device)
    raise CbbenchError(f"unknown attention {name!r}; expected one of {', '.join(ATTENTION_NAMES)}")


def _compiled(device: torch.device) -> AttentionBackend:
    problem = _compiled_problem(device)
    if problem is not None:
        raise CbbenchError(f"attention 'compiled' {problem}; use 'auto' or 'gathered'")
    from engines.loop.attention.cpu import CompiledAttention  # numba is an optional extra

    return CompiledAttention()


def _compiled_problem(device: torch.device) -> str | None:
    if device.type != "cpu":
        return f"runs on a CPU only, and the model is on {device}"
    if find_spec("numba") is None:
        return "needs numba (install cbbench with its extra 'fast')"
    return None
