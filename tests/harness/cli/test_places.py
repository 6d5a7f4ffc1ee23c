"""Nothing that a run leaves says where on this machine its files were."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

Call = Callable[..., "subprocess.CompletedProcess[str]"]

TRACE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,37,8
2023-11-16 18:15:50.9951690,39,9
"""


def test_engines_that_differ_in_a_folder_alone_need_names(call: Call) -> None:
    done = call(
        *("run", "--workload", "uniform", "--num-prompts", "1"),
        *("--engines", "fake[table=/a/t.csv],fake[table=/b/t.csv]"),
    )
    assert done.returncode == 2
    assert "two engines would both be named 'fake[table=t.csv]'" in done.stderr


def test_no_result_file_names_a_folder_of_this_machine(call: Call, tmp_path: Path) -> None:
    model = tmp_path / "models" / "small"
    model.mkdir(parents=True)
    trace = tmp_path / "traces" / "conv.csv"
    trace.parent.mkdir()
    trace.write_text(TRACE)
    done = call(
        *("run", "--model", str(model), "--workload", f"trace:{trace}", "--trace-scale", "0.01"),
        *("--engines", f"fake[table={tmp_path}/t.csv],b=fake[fault=places],c=fake[fault=kill]"),
        *("--num-warmups", "1", "--repeats", "1", "--out", "o"),
    )
    assert done.returncode == 0, done.stderr
    texts = {
        path.name: path.read_text()
        for path in (tmp_path / "o").rglob("*")
        if path.is_file() and path.suffix != ".parquet" and path.parent.name != "logs"
    }
    assert {"run.json", "report.md", "settings.json"} < texts.keys()
    for name in ("requests.parquet", "steps.parquet"):
        table = pq.read_table(tmp_path / "o" / name, partitioning=None)
        texts[name] = f"{table.to_pylist()} {table.schema.metadata}"
    assert [name for name, text in texts.items() if str(tmp_path) in text] == []
    settings = json.loads(texts["run.json"])["settings"]
    assert settings["model"] == "small"
    assert settings["model_info"]["name"] == "small"
    assert settings["workload"]["name"] == "trace:conv.csv"
    assert settings["workload"]["settings"]["workload"] == "trace:conv.csv"
    errors = {failure["engine"]: failure["error"] for failure in settings["failures"]}
    assert errors["b"] == "RuntimeError: cannot read ./models/small/weights"
    assert "too much memory at ./x" in errors["c"]
    assert "fake[table=t.csv]" in texts["run.json"]
