"""Which device and number format a model runs in, and with how many threads.

Resolves what the user left on `auto` and refuses what the machine cannot do. It loads no model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import torch

from engines.api import CbbenchError
from engines.registry import unknown_name

_DTYPES: Final = {
    "float32": torch.float32,
    "fp32": torch.float32,
    "bfloat16": torch.bfloat16,
    "bf16": torch.bfloat16,
    "float16": torch.float16,
    "fp16": torch.float16,
}
_CPU_INFO: Final = Path("/proc/cpuinfo")
_BF16_FLAGS: Final = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


def resolve_device(name: str) -> torch.device:
    """`auto` is the first CUDA device, else the CPU. Raises `CbbenchError` when not present."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise CbbenchError(f"got device {name!r}, expected auto, cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise CbbenchError(f"device {name!r} is not supported; use auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise CbbenchError(
            f"got device {name!r}, but torch sees {torch.cuda.device_count()} CUDA devices; "
            "use --device auto or cpu"
        )
    return device


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 where the hardware computes in it, else float32."""
    if name == "auto":
        return torch.bfloat16 if has_bf16_units(device) else torch.float32
    if name not in _DTYPES:
        raise unknown_name("dtype", name, ["auto", *_DTYPES])
    dtype = _DTYPES[name]
    if dtype is torch.float16 and device.type == "cpu":
        raise CbbenchError("dtype float16 has no fast path on a CPU; use float32 or bfloat16")
    return dtype


def has_bf16_units(device: torch.device, cpu_info: Path = _CPU_INFO) -> bool:
    """Whether the device multiplies in bfloat16 itself, rather than by emulation."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    try:
        text = cpu_info.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    lines = (line for line in text.splitlines() if line.lower().startswith(("flags", "features")))
    return bool(_BF16_FLAGS & set(next(lines, "").split()))


def use_threads(threads: int | None) -> None:
    """Sets how many threads torch computes with; `None` leaves torch's own choice."""
    if threads is not None:
        torch.set_num_threads(threads)
