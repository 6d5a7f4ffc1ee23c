"""`python -m harness.calibration [RUNS]`: the simulated shares that docs/methodology.md quotes."""

from __future__ import annotations

import sys
from typing import Final

from harness.calibration.shares import (
    ALARM,
    FalseAlarms,
    Power,
    false_alarms,
    least_share,
    most_share,
    power,
)
from harness.calibration.simulated import BY_REQUEST, NOISES
from harness.looks import LOOKS
from harness.results.saturation import MAIN_SATURATED

_RUNS: Final = 2000
_UNTIL_CI: Final = 0.05
_SEED: Final = 1


def main(arguments: list[str]) -> None:
    runs = int(arguments[0]) if arguments else _RUNS
    print(f"equal engines called separable, {runs} runs each; 5% is stated, up to", end=" ")
    print(f"{most_share(ALARM, runs):.1%} is chance:")
    for noise in NOISES:
        for line in alarm_lines(
            noise.name, false_alarms(noise, runs, until_ci=_UNTIL_CI, seed=_SEED)
        ):
            print(line, flush=True)
    print(f"a slow-down of 10%; 95% is stated, down to {least_share(0.95, runs):.1%} is chance:")
    for noise in NOISES:
        print(power_line(noise.name, power(noise, runs, seed=_SEED)), flush=True)


def alarm_lines(name: str, found: FalseAlarms) -> list[str]:
    lines = []
    for metric in (MAIN_SATURATED, BY_REQUEST):
        shares = ", ".join(f"{n} rounds {found.after[n, metric]:.1%}" for n in LOOKS)
        lines.append(f"  {name}, {metric}: {shares}")
    ends = ", ".join(f"{share:.0%} after {n}" for n, share in found.ended_after.items())
    until = f"--until-ci {_UNTIL_CI:.0%}"
    return [*lines, f"  {name}, {until}: {found.until_ci:.1%} (ended: {ends})"]


def power_line(name: str, found: Power) -> str:
    return (
        f"  {name}: a round's ratio spreads by {found.log_std:.1%}, which asks for "
        f"{found.rounds} rounds; found in {found.found:.1%}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
