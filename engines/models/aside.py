"""Questions about models, for a process that must stay light: asked in a process of their own.

Each costs the seconds that loading torch takes, and none of its memory afterwards.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from engines.api import CbbenchError
from engines.models.tiny_tokenizer import TINY

_DTYPE: Final = """
import sys
from engines.models.hardware import resolve_device, resolve_dtype
print(str(resolve_dtype("auto", resolve_device(sys.argv[1]))).removeprefix("torch."))
"""
_EXPORT: Final = """
import sys
from pathlib import Path
from engines.models.export import export_model
export_model(sys.argv[1], Path(sys.argv[2]))
"""


def dtype_of(name: str, device: str) -> str:
    """What `auto` comes to on a device; any other name is itself."""
    return _asked(_DTYPE, device) if name == "auto" else name


def files_of(model: str, folder: Path) -> str:
    """What to call a model before another program.

    A folder's own path, an id as it is, and the built-in model written out into `folder`.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        return str(path.absolute())
    if model != TINY:
        return model
    target = str(folder / TINY)
    _asked(_EXPORT, model, target)
    return target


def _asked(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise CbbenchError(f"a question about the model failed: {lines[-1]}")
    return done.stdout.strip()
