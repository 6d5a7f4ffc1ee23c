"""`cbbench explain` on a run of the default model, on its raw files, and on mistakes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

Call = Callable[..., "subprocess.CompletedProcess[str]"]


def test_a_real_run_explains_itself_closed_or_cut(call: Call, tmp_path: Path) -> None:
    done = call(
        *("run", "--engines", "continuous[num_blocks=14,block_size=4,max_num_seqs=6]"),
        *("--model", "tiny", "--dtype", "float32", "--threads", "1", "--max-model-len", "60"),
        *("--workload", "uniform", "--num-prompts", "8", "--input-len", "12", "--output-len", "9"),
        *("--num-warmups", "1", "--repeats", "1", "--request-rate", "inf", "--out", "o"),
    )
    assert done.returncode == 0, done.stderr
    closed = call("explain", "o")
    assert closed.returncode == 0, closed.stderr
    assert " 1. " in closed.stdout
    assert "shorter with num_blocks=28" in closed.stdout
    story = call("explain", "o", "--request", "00003")
    assert story.stdout.startswith("00003 in continuous[")
    assert "first token, " in story.stdout
    for name in ("run.json", "requests.parquet", "steps.parquet"):
        (tmp_path / "o" / name).unlink()
    assert call("explain", "o").stdout == closed.stdout
    assert call("explain", "o", "--request", "00003").stdout == story.stdout
    for path in (tmp_path / "o" / "raw").iterdir():
        path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    cut = call("explain", "o")
    assert cut.returncode == 0, cut.stderr
    assert "cause not told" in cut.stdout


def test_mistakes_are_told_in_a_line(call: Call, tmp_path: Path, small: list[str]) -> None:
    assert call("run", "--engines", "fake", *small, "--out", "o").returncode == 0
    assert call("explain", "o").returncode == 0
    for arguments in (("nowhere",), ("o", "--engine", "c"), ("o", "--request", "nobody")):
        done = call("explain", *arguments)
        assert done.returncode == 2
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
    shutil.rmtree(tmp_path / "o")
