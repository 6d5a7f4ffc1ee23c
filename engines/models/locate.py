"""Finds a checkpoint by local path or Hugging Face id, and says in time that it is not there.

Refuses pickled weights. It reads no weights; without a network it answers from the cache or
fails within seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from huggingface_hub import HfApi, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

from engines.api import CbbenchError

_HUB_TIMEOUT_S: Final = 5.0
# The hub client's own error is built on its HTTP library's base error, which also covers failed
# connections; which library that is has changed over its versions.
_UNREACHABLE: Final[tuple[type[BaseException], ...]] = (
    cast(type[BaseException], HfHubHTTPError.__bases__[0]),
    OfflineModeIsEnabled,
    OSError,
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a model lies. `local`: everything needed is on this machine already."""

    name: str
    source: str
    local: bool

    def file(self, name: str) -> Path | None:
        """The path of a file of the checkpoint, if it is on this machine."""
        if Path(self.source).is_dir():
            path = Path(self.source) / name
            return path if path.is_file() else None
        cached = try_to_load_from_cache(self.source, name)
        return Path(cached) if isinstance(cached, str) else None


def locate(name: str) -> Checkpoint:
    """Raises `CbbenchError` when there is no such folder, or no such model within reach."""
    path = Path(name).expanduser()
    if path.is_dir():
        return _check_folder(name, path)
    if path.exists() or _looks_like_path(name):
        raise CbbenchError(
            f"model {name!r} is not a folder on this machine; "
            "give 'tiny', a folder with config.json and safetensors, or a Hugging Face id"
        )
    return _on_the_hub(name)


def _looks_like_path(name: str) -> bool:
    return name.startswith((".", "~", "/")) or name.count("/") > 1 or "\\" in name


def _check_folder(name: str, path: Path) -> Checkpoint:
    if not (path / "config.json").is_file():
        raise CbbenchError(
            f"model folder {name!r} has no config.json; expected a transformers checkpoint"
        )
    if not any(path.glob("*.safetensors")):
        pickled = any(path.glob("*.bin")) or any(path.glob("*.pt"))
        found = "only pickled weights, which can run code" if pickled else "no weights"
        raise CbbenchError(
            f"model folder {name!r} has {found}; expected *.safetensors (convert it with "
            "save_pretrained)"
        )
    return Checkpoint(name=name, source=str(path), local=True)


def _on_the_hub(name: str) -> Checkpoint:
    try:
        if _is_cached(name):
            return Checkpoint(name=name, source=name, local=True)
        HfApi().model_info(name, timeout=_HUB_TIMEOUT_S)
    except HFValidationError:
        raise CbbenchError(
            f"model {name!r} is neither a folder here nor a valid Hugging Face id"
        ) from None
    except HfHubHTTPError as error:
        raise CbbenchError(
            f"the Hugging Face hub gives no access to model {name!r} "
            f"(HTTP {error.response.status_code}); check the id, or pass a local folder"
        ) from None
    except _UNREACHABLE:
        raise CbbenchError(
            f"model {name!r} is not in the cache and the Hugging Face hub cannot be reached; "
            "pass the path of a local folder, or use 'tiny'"
        ) from None
    return Checkpoint(name=name, source=name, local=False)


def _is_cached(name: str) -> bool:
    """Whether the cache holds a config and weights that are not pickled."""
    config = try_to_load_from_cache(name, "config.json")
    return isinstance(config, str) and any(Path(config).parent.glob("*.safetensors"))
