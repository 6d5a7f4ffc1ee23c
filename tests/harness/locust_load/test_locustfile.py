"""The locustfile as people run it, against a server on loopback: every process is a real one."""

from __future__ import annotations

import re

import pytest

SMALL = ("--workload", "uniform", "--input-len", "8", "--output-len", "4", "--num-warmups", "1")


def drawn(number: int) -> set[tuple[int, ...]]:
    from harness.locust_load.options import ARGUMENTS, read_load_options
    from harness.locust_load.plan import draw_plan
    from harness.locust_load.tokens import TINY_LIMITS

    given = {argument.name: argument.default for argument in ARGUMENTS}
    given |= {"workload": "uniform", "input_len": "8", "output_len": "4", "num_prompts": number}
    plan = draw_plan(read_load_options(given, "http://x", 1), TINY_LIMITS)
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
    assert {row["output_tokens"] for row in done.rows()} == {4}


def test_the_latency_row_counts_to_the_last_token_and_ttft_to_the_first(serve, load):
    """Headers come at once, tokens at 100, 200 ... 500 ms."""
    server = serve("--first-ms", "100", "--gap-ms", "100")
    arguments = ("--workload", "uniform", "--input-len", "8", "--output-len", "5")
    done = load(server.url, "--users", "1", "--num-prompts", "2", *arguments)
    averages = {
        kind: float(re.search(rf"^{kind} .*?\| +(\d+)", done.err, re.M)[1])
        for kind in ("E2E", "TTFT", "TPOT")
    }
    assert 480 <= averages["E2E"] < 700
    assert 95 <= averages["TTFT"] < 250
    assert 90 <= averages["TPOT"] < 150
    assert 0.48 <= done.cell["e2e_s"]["p50"] < 0.7
    assert 0.095 <= done.cell["ttft_s"]["p50"] < 0.25


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
