"""The locustfile as people run it, against a server on loopback: every process is a real one."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from harness.locust_load.options import ARGUMENTS, read_load_options
from harness.locust_load.plan import draw_plan
from workloads.workload import ModelLimits

pytestmark = pytest.mark.loopback

ROOT = Path(__file__).resolve().parents[3]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
SMALL = ("--workload", "uniform", "--input-len", "8", "--output-len", "4", "--num-warmups", "1")


def drawn(number: int) -> set[tuple[int, ...]]:
    given = {argument.name: argument.default for argument in ARGUMENTS}
    given |= {"workload": "uniform", "input_len": "8", "output_len": "4", "num_prompts": number}
    plan = draw_plan(
        read_load_options(given, "http://x", 1), ModelLimits(4096, 4096, tuple(range(8)))
    )
    return {request.prompt_token_ids for request in plan.requests}


def test_a_closed_loop_asks_each_request_once_and_reports_it(serve, load):
    server = serve()
    done = load(server.url, "--users", "4", "--num-prompts", "12", *SMALL)
    assert done.code == 0, done.err
    prompts = server.prompts()
    assert len(prompts) == len(set(prompts)) == 12 + 1
    assert drawn(12) < set(prompts)
    assert done.cell["counts"] == {
        "offered": 12,
        "ok": 12,
        "rejected": 0,
        "failed": 0,
        "timeout": 0,
        "cancelled": 0,
    }
    assert done.cell["load"] == "closed-loop-4"
    assert server.log()["most"] == 4
    assert re.search(r"^ +Aggregated +12 ", done.err, re.M)
    assert {row["output_tokens"] for row in done.rows()} == {4}


def test_the_latency_row_counts_to_the_last_token_and_ttft_to_the_first(serve, load):
    """Headers come at once, tokens at 400, 500 ... 800 ms. Others may slow all of it down."""
    server = serve("--first-ms", "400", "--gap-ms", "100")
    arguments = ("--workload", "uniform", "--input-len", "8", "--output-len", "5")
    done = load(server.url, "--users", "1", "--num-prompts", "2", *arguments)
    averages = {
        kind: float(re.search(rf"^{kind} .*?\| +(\d+)", done.err, re.M)[1])
        for kind in ("E2E", "TTFT", "TPOT")
    }
    assert averages["TTFT"] >= 395
    assert averages["TPOT"] >= 90
    assert averages["E2E"] >= averages["TTFT"] + 4 * 90
    assert averages["E2E"] == pytest.approx(averages["TTFT"] + 4 * averages["TPOT"], abs=10)
    of_run = {kind: 1e3 * done.cell[f"{kind.lower()}_s"]["mean"] for kind in averages}
    assert averages == pytest.approx(of_run, abs=2)


def test_two_workers_ask_each_request_once_together(serve, locust, load, free_port):
    server, port = serve(), str(free_port())
    workers = [locust("--worker", "--master-port", port) for _ in range(2)]
    done = load(
        server.url,
        *("--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", port),
        *("--expect-workers", "2", "--users", "6", "--num-prompts", "21"),
        *("--request-rate", "60", *SMALL),
    )
    assert done.code == 0, done.err
    assert [worker.wait(10) for worker in workers] == [0, 0]
    prompts = server.prompts()
    assert len(prompts) == len(set(prompts)) == 21 + 1
    assert drawn(21) < set(prompts)
    assert done.cell["counts"]["ok"] == 21
    assert done.run["settings"]["load_workers"] == 2
    assert "cannot be" not in str(done.cell["verdict"])


def test_failures_and_missed_objectives_are_the_exit_code(serve, load):
    server = serve("--fail-every", "4", "--first-ms", "20")
    done = load(server.url, "--users", "2", "--num-prompts", "12", "--goodput", "ttft:1", *SMALL)
    assert done.code == 1
    assert "were not ok, more than --max-fail-ratio 0.01 allows" in done.out
    assert "0.0% of the requests met --goodput ttft:1" in done.out
    assert done.cell["attainment"] == 0
    assert sum(done.cell["reasons"]["failed"].values()) == done.cell["counts"]["failed"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--request-rate", "0"), "--request-rate is '0'; expected a number > 0, or inf"),
        (("--workload", "chat-mixx"), "chat-mix"),
        (("--model", "other"), "it serves: tiny"),
    ],
)
def test_mistakes_are_told_in_a_line_and_exit_with_2(serve, load, arguments, message):
    done = load(serve().url, "--users", "1", *arguments)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err
    assert not done.folder.exists()


def test_a_server_that_is_down_gives_a_report_of_failures(load, free_port):
    done = load(f"http://127.0.0.1:{free_port()}", "--users", "2", "--num-prompts", "5", *SMALL)
    assert done.code == 1
    assert done.cell["counts"]["failed"] == 5
    assert done.cell["request_throughput_req_s"] == 0
    assert done.cell["ttft_s"]["p50"] is None
    assert list(done.cell["reasons"]["failed"]) == ["could not connect: Connection refused"]
    assert "total: 0 of 5 requests ok" in done.out
    assert "Traceback" not in done.err


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_and_keeps_what_was_measured(serve, locust, tmp_path, sent, code):
    server, folder = serve(), tmp_path / "run"
    process = locust(
        *("--headless", "--only-summary", "--host", server.url, "--out", str(folder)),
        *("--users", "4", "--num-prompts", "500", "--request-rate", "25", *SMALL),
    )
    while not folder.exists() or b'"f":' not in b"".join(
        path.read_bytes() for path in folder.glob("raw/*")
    ):
        assert process.poll() is None
    process.send_signal(sent)
    out, err = process.communicate(timeout=30)
    assert process.returncode == code
    counts = json.loads((folder / "run.json").read_text())["results"][0]["counts"]
    assert counts["ok"] > 0
    assert counts["ok"] + counts["cancelled"] == counts["offered"] == 500
    assert "SUSPECT: the run was interrupted" in out
    assert "exit code" not in out
    assert "Traceback" not in err


def test_run_time_ends_the_run_and_gives_what_is_on_its_way_a_grace(serve, load):
    server = serve("--silent-after", "4", "--first-ms", "200")
    done = load(
        server.url,
        *("--users", "2", "--num-prompts", "50", "--run-time", "3s", "--stop-timeout", "1", *SMALL),
    )
    assert done.code == 0, done.err
    counts = done.cell["counts"]
    assert counts["ok"] == 2
    assert counts["ok"] + counts["cancelled"] == counts["offered"] == 50


def document() -> str:
    return (ROOT / "docs" / "locust.md").read_text(encoding="utf-8").replace("\\\n", " ")


def test_every_option_stands_in_the_document_with_its_default():
    rows = re.findall(r"^\| `(--[a-z-]+)` \| ([^|]*) \|", document(), re.MULTILINE)
    shown = {flag: default.strip("` ") for flag, default in rows}
    assert shown == {
        argument.flag: "" if argument.default in (None, False) else argument.default
        for argument in ARGUMENTS
    }


def test_commands_in_the_document_name_known_options():
    known = {argument.flag for argument in ARGUMENTS}
    found = re.findall(r"^ {4}(?:[A-Z_]+=\S+ )?(locust .*)$", document(), re.MULTILINE)
    assert len(found) >= 5
    command = [sys.executable, "-m", "locust", "-f", "harness/locustfile.py", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    for line in found:
        words = shlex.split(line)
        assert words[:3] == ["locust", "-f", "harness/locustfile.py"]
        for word in words[3:]:
            known_to_locust = f"{word} " in done.stdout
            assert not word.startswith("--") or word in known or known_to_locust, f"{word}: {line}"


def test_the_parts_below_the_locustfile_load_neither_locust_nor_torch():
    names = sorted(path.stem for path in (ROOT / "harness" / "locust_load").glob("[a-z]*.py"))
    assert "worker_side" in names
    code = "import sys\n" + "\n".join(f"import harness.locust_load.{name}" for name in names)
    done = subprocess.run(
        [sys.executable, "-c", code + "\nprint(*sys.modules)"],
        **{"capture_output": True, "text": True, "timeout": 60, "check": True},
    )
    assert {"torch", "transformers", "locust", "gevent"} & set(done.stdout.split()) == set()


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_its_own_requests_and_no_others(
    serve, locust, load, free_port, tmp_path
):
    server, port = serve("--first-ms", "100"), str(free_port())
    workers = [locust("--worker", "--master-port", port) for _ in range(2)]

    def kill_one_in_the_middle() -> None:
        while sum(len(p.read_bytes()) for p in (tmp_path / "run").glob("raw/*")) < 12_000:
            time.sleep(0.05)
        workers[0].kill()

    killer = threading.Thread(target=kill_one_in_the_middle, daemon=True)
    killer.start()
    done = load(
        server.url,
        *("--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", port),
        *("--expect-workers", "2", "--users", "6", "--num-prompts", "80"),
        *("--request-rate", "20", *SMALL),
    )
    killer.join(1)
    counts = done.cell["counts"]
    assert done.code == 1
    assert counts["ok"] >= 40
    assert counts["failed"] > 0
    assert counts["ok"] + counts["failed"] == counts["offered"] == 80
    assert list(done.cell["reasons"]["failed"]) == [
        "the load worker that had this request was lost"
    ]
    lost = {int(row["request_id"]) % 2 for row in done.rows() if row["status"] == "failed"}
    assert len(lost) == 1


def test_forked_workers_share_the_requests(serve, load):
    server = serve()
    done = load(server.url, "--processes", "3", "--users", "6", "--num-prompts", "30", *SMALL)
    assert done.code == 0, done.err
    prompts = server.prompts()
    assert len(prompts) == len(set(prompts)) == 30 + 1
    assert done.cell["counts"]["ok"] == 30


@pytest.mark.skipif(BROWSER is None, reason="needs a Chromium or a Chrome")
def test_the_web_page_shows_the_ttft_rows(serve, locust, free_port, tmp_path):
    """Started from the page, with an option changed there; looked at by a browser."""
    server, port = serve("--first-ms", "50"), str(free_port())
    process = locust("--web-host", "127.0.0.1", "--web-port", port, "--host", server.url)
    page = f"http://127.0.0.1:{port}/"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    form = {"user_count": "2", "spawn_rate": "100", "host": server.url, "num_prompts": "9"}
    form |= {"workload": "uniform", "input_len": "8", "output_len": "4", "request_rate": ""}

    def wait_for(path: str, data: bytes | None, key: str, value: object) -> None:
        until_s = time.monotonic() + 60
        while time.monotonic() < until_s:
            assert process.poll() is None
            try:
                with opener.open(page + path, data, timeout=10) as answer:
                    if json.load(answer)[key] == value:
                        return
            except OSError:
                pass
            time.sleep(0.1)
        raise AssertionError(f"{key} of {path} never was {value}")

    wait_for("swarm", urllib.parse.urlencode(form).encode(), "success", True)
    wait_for("stats/requests", None, "state", "stopped")
    browser = [
        *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-proxy-server"),
        *(f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=8000", "--dump-dom"),
    ]
    seen = subprocess.run([*browser, page], capture_output=True, text=True, timeout=120, check=True)
    rows = re.findall(r"<tr.*?</tr>", seen.stdout, re.DOTALL)
    cells = {c[0]: c for row in rows if (c := re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL))}
    for kind in ("E2E", "TTFT", "TPOT", "LAG"):
        assert cells[kind][1:4] == ["/v1/completions", "9", "0"]
    assert float(cells["TTFT"][4]) >= 45
    assert float(cells["E2E"][4]) >= float(cells["TTFT"][4])
    (run,) = (tmp_path / "results").iterdir()
    counts = json.loads((run / "run.json").read_text())["results"][0]["counts"]
    assert (counts["offered"], counts["ok"]) == (9, 9)
