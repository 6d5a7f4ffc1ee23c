from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from workloads.loads import relative
from workloads.workload import ModelLimits, draw, open_workload

PRESET = """
num_prompts = 3
[[components]]
prompt = { kind = "fixed", value = 8 }
output = { kind = "fixed", value = 4 }
[[loads]]
kind = "relative"
fraction_of_best = 0.5
max_concurrency = 6
"""


def test_a_presets_own_cap_stays_when_its_arrivals_are_made_constant(
    write: Callable[[str, str], Path], limits: ModelLimits
) -> None:
    config = open_workload(str(write("capped.toml", PRESET)))
    drawn = draw(config, seed=0, limits=limits, burstiness=math.inf)
    (load,) = drawn.default_loads
    assert load == relative(0.5, math.inf, 6)
    assert load.name == "constant-50%, at most 6"
