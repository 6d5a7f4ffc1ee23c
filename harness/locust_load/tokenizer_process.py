"""`python -m harness.locust_load.tokenizer_process MODEL`: a model's tokenizer as JSON on stdout.

A process of its own: the library that reads a checkpoint's tokenizer loads torch, which shares no
process with gevent.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from engines.api import CbbenchError
from engines.models.text_data import text_data


def main(model: str) -> None:
    try:
        found: dict[str, object] = asdict(text_data(model))
    except CbbenchError as error:
        found = {"error": str(error)}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
