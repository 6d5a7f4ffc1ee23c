"""The API key: read from the environment of each process, sent, and shown to nobody."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final

from engines.api import CbbenchError

_SHOWN_AS: Final = "[key]"
_CUT: Final = "..."
_TELLING: Final = 4  # characters; fewer say nothing of a key


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A secret that no text of ours repeats; `None` where none is asked for."""

    value: str | None = field(repr=False)

    @classmethod
    def from_environment(cls, variable: str | None) -> ApiKey:
        """Raises `CbbenchError` when the variable is named and holds no key."""
        if variable is None:
            return cls(None)
        value = os.environ.get(variable, "").strip()
        if not value or not value.isascii() or not value.isprintable():
            raise CbbenchError(
                f"--api-key-env names {variable}, which holds no key here (printable ASCII); "
                "set it for every locust process"
            )
        return cls(value)

    def hide_in(self, text: str) -> str:
        """Also where the text was cut in the middle of the key."""
        if not self.value:
            return text
        text = text.replace(self.value, _SHOWN_AS)
        if _CUT in text:
            for length in range(len(self.value) - 1, _TELLING - 1, -1):
                text = text.replace(self.value[:length] + _CUT, _SHOWN_AS + _CUT)
        return text

    def headers(self) -> dict[str, str]:
        """Those of every request."""
        found = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        return found if self.value is None else found | {"Authorization": f"Bearer {self.value}"}
