"""Invented result files in each tool's layout, and the real ones where they are at hand."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parent / "data"


@pytest.fixture
def content():
    """What a JSON file of `data` holds, to be changed and written."""

    def load(name: str) -> Any:
        return json.loads((DATA / name).read_text(encoding="utf-8"))

    return load


@pytest.fixture
def peer_results() -> Path:
    folder = os.environ.get("CBBENCH_TEST_DATA")
    if not folder or not (Path(folder) / "peer-results").is_dir():
        pytest.skip("CBBENCH_TEST_DATA has no peer-results")
    return Path(folder) / "peer-results"
