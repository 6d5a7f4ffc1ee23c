"""Whole runs in this process: a master's part, workers' parts, users as threads, a real server."""

from __future__ import annotations

import json
import time
from itertools import pairwise

import pytest

from engines.api import CbbenchError
from harness.locust_load import crew, worker_side
from harness.locust_load.collector import LOST
from harness.locust_load.exchange import RUN_ENDED
from harness.locust_load.messages import Ack, Begin, Begun, Ping, Prepared, Report
from harness.locust_load.tokens import Texts
from harness.records import read_cells
from harness.results.file import read_run

pytestmark = pytest.mark.loopback

WARM = {"num_warmups": "2"}


def counts(rig) -> dict[str, int]:
    return {name: n for name, n in rig.done.cell["counts"].items() if n}


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_every_request_is_asked_once_however_many_workers_there_are(serve, rig, workers):
    server = serve()
    made = rig(server.url, workers=workers, num_prompts="17", request_rate="200", **WARM)
    outcome = made.play()
    assert (outcome.code, made.errors) == (0, [])
    asked = server.prompts()
    assert len(asked) == len(set(asked)) == 17 + 2
    assert counts(made) == {"offered": 17, "ok": 17}
    names = [name for _, name in made.told]
    assert sorted(names) == [f"{i:05d}" for i in range(17)]
    assert len({worker for worker, _ in made.told}) == workers
    (cell,) = read_cells(made.folder)
    assert cell.defects.total == 0
    assert cell.trailer.warmup_requests == 2


def test_lost_messages_are_sent_again_and_count_once(serve, rig, monkeypatch):
    monkeypatch.setattr(worker_side, "_AGAIN_AFTER_S", 0.3)
    monkeypatch.setattr(crew, "_PONG_WITHIN_S", 0.3)
    server = serve()
    made = rig(server.url, workers=2, num_prompts="16", request_rate="16", **WARM)
    monkeypatch.setattr(crew, "_BEGUN_WITHIN_S", 0.3)
    made.lose_messages = [("a", Report), ("b", Ack), ("a", Ping), ("a", Begin), ("b", Begun)]
    assert made.play().code == 0
    assert made.lose_messages == []
    assert counts(made) == {"offered": 16, "ok": 16}
    asked = server.prompts()
    assert len(asked) == len(set(asked)) == 16 + 2
    (cell,) = read_cells(made.folder)
    assert cell.defects.total == 0


def test_users_that_a_busy_worker_tells_of_late_are_waited_for(serve, rig):
    made = rig(serve().url, workers=2, num_prompts="4")
    made.users_come_late = 3
    assert made.play().code == 0
    assert counts(made) == {"offered": 4, "ok": 4}


def test_a_worker_that_dies_costs_its_own_requests_and_no_others(serve, rig, monkeypatch):
    monkeypatch.setattr(crew, "_LOST_AFTER_S", 0.5)
    made = rig(
        serve("--first-ms", "30").url, workers=2, users=1, num_prompts="20", request_rate="40"
    )
    made.start()
    while len(made.told) < 6:
        pass
    made.dead.add("b")
    made.complete.wait(30)
    made.finish()
    cell = made.done.cell
    by_status = counts(made)
    assert by_status.pop("offered") == sum(by_status.values()) == 20
    assert by_status["ok"] >= 10
    assert cell["reasons"]["failed"] == {LOST: by_status["failed"]}
    assert made.done.run["settings"]["lost_load_workers"] == 1
    lost = {row["request_id"] for row in made.done.rows() if row["status"] == "failed"}
    assert lost <= {f"{i:05d}" for i in range(1, 20, 2)}


def test_waiting_for_a_user_counts_from_the_schedule_and_is_said(serve, rig):
    server = serve("--first-ms", "50")
    schedule = {"num_prompts": "6", "request_rate": "100", "burstiness": "inf"}
    made = rig(server.url, users=1, num_warmups="1", **schedule)
    outcome = made.play()
    waits = made.done.run["settings"]["waits_for_a_user"]
    assert waits.startswith("5 requests were due while all 1 users were busy, the longest for ")
    assert waits in outcome.lines
    ttft_s = [row["first_token_s"] - row["scheduled_s"] for row in made.done.rows()]
    assert ttft_s == sorted(ttft_s)
    assert ttft_s[-1] > 5 * 0.045
    assert made.done.cell["lag_s"]["max"] > 4 * 0.045
    assert any("the client sent late" in text for text in made.done.cell["verdict"]["reasons"])
    assert server.log()["most"] == 1


def test_a_silent_server_times_out_between_tokens_and_the_run_goes_on(serve, rig):
    """Of three requests the last gets its first token and then nothing."""
    server = serve("--silent-after", "4", "--gap-ms", "100")
    made = rig(
        server.url,
        users=1,
        num_prompts="3",
        idle_timeout="1s",
        num_warmups="1",
        goodput="ttft:9e3",
    )
    made.play(10)
    assert counts(made) == {"offered": 3, "ok": 2, "timeout": 1}
    assert made.done.cell["reasons"]["timeout"] == {"no first token within 1 s": 1}


def test_the_end_gives_a_grace_and_cuts_off_the_rest(serve, rig):
    server = serve("--first-ms", "400", "--silent-after", "2")
    made = rig(server.url, users=2, num_prompts="6", num_warmups="0")
    made.start()
    while len(server.log()["requests"]) < 1 + 2:  # the question for what it takes comes first
        time.sleep(0.02)
    made.finish(grace_s=2.0)
    assert counts(made) == {"offered": 6, "ok": 1, "cancelled": 5}
    assert made.done.cell["reasons"]["cancelled"] == {RUN_ENDED: 5}
    assert made.done.cell["interrupted"]


def test_a_run_that_is_stopped_before_it_began_leaves_nothing(serve, rig):
    made = rig(serve().url)
    made.start(users_are_there=False)
    assert made.folder.exists()
    assert made.finish() is None
    assert not made.folder.exists()


def test_a_worker_with_another_workload_is_refused(serve, rig):
    made = rig(serve().url, workers=2)
    honest = made._to_master

    def lie(name, message):
        if name == "b" and isinstance(message, Prepared):
            message = Prepared(message.run, "f" * 64, 0)
        honest(name, message)

    made._to_master = lie
    made.start()
    assert made.complete.wait(10)
    assert "load worker b drew another workload (ffffffffffff, expected " in str(made.errors[0])
    assert made.finish() is None


def test_a_server_that_takes_no_ids_gets_text(serve, rig):
    server = serve("--text-only")
    made = rig(server.url, num_prompts="3", **WARM)
    assert made.play().code == 0
    prompts = [request["prompt"] for request in server.log()["requests"][1:]]
    texts = Texts("tiny")
    assert len(prompts) == 3 + 2
    assert all(isinstance(prompt, str) for prompt in prompts)
    drawn = {texts.decoder()(r.prompt_token_ids) for r in made.run._layout.plan.requests}
    assert drawn < set(prompts)
    assert made.done.run["settings"]["prompt_form"] == "text"
    assert made.done.cell["client"]["counted_by"] == {"usage": 3}
    reasons = made.done.cell["verdict"]["reasons"]
    assert any("counted other prompt lengths" in reason for reason in reasons)


def test_chat_sends_a_files_own_texts_as_messages(serve, rig, tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "Hello", "max_tokens": 2}\n{"prompt": "You", "max_tokens": 3}\n')
    server = serve()
    lengths = {"input_len": None, "output_len": None, "num_warmups": "0"}
    made = rig(server.url, workload=f"jsonl:{path}", api="chat", **lengths)
    made.play()
    asked = server.log()["requests"]
    assert {request["path"] for request in asked} == {"/v1/chat/completions"}
    texts = {r["messages"][0]["content"]: r["max_tokens"] for r in asked}
    assert texts == {"Hello": 2, "You": 3}
    assert sorted(row["output_tokens"] for row in made.done.rows()) == [2, 3]


def test_completions_get_a_files_texts_in_the_models_own_chat_template(serve, rig, tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "Hello", "max_tokens": 2}\n')
    server = serve()
    lengths = {"input_len": None, "output_len": None, "num_warmups": "0"}
    made = rig(server.url, workload=f"jsonl:{path}", **lengths)
    made.play()
    (asked,) = server.prompts()
    assert Texts("tiny").decoder()(asked) == "<|user|>Hello<|end|><|assistant|>"


def test_turns_of_a_session_come_one_after_another(serve, rig):
    server = serve()
    lengths = {"input_len": None, "output_len": None, "num_warmups": "0"}
    made = rig(server.url, workers=2, users=3, workload="multi-turn", num_prompts="24", **lengths)
    assert made.play().code == 0
    (cell,) = read_cells(made.folder)
    assert cell.closed_loop
    by_session = {}
    for record in cell.requests:
        by_session.setdefault(record.session, []).append(record)
    assert max(map(len, by_session.values())) > 1
    for turns in by_session.values():
        turns.sort(key=lambda turn: turn.prompt_tokens)
        for before, after in pairwise(turns):
            assert after.scheduled_s >= before.end_s


def test_a_server_with_openais_own_fields_only_gets_no_others(serve, rig):
    server = serve()
    extra = {"no_extensions": True, "extra_body": '{"user": "me", "temperature": null}'}
    made = rig(server.url, num_prompts="1", num_warmups="0", prompt_form="ids", **extra)
    made.play()
    (asked,) = server.log()["requests"]
    assert set(asked) - {"path", "key"} == {
        *("model", "prompt", "max_tokens", "stream", "stream_options", "user"),
    }


def test_the_key_is_sent_and_written_nowhere(serve, rig, monkeypatch):
    monkeypatch.setenv("LOAD_TEST_KEY", "sk-very-secret")
    server = serve("--fail-every", "2")
    made = rig(server.url, num_prompts="4", api_key_env="LOAD_TEST_KEY")
    outcome = made.play()
    assert {request["key"] for request in server.log()["requests"]} == {"bearer sk-very-secret"}
    written = b"".join(path.read_bytes() for path in made.folder.rglob("*") if path.is_file())
    assert b"very-secret" not in written
    assert "very-secret" not in "\n".join(outcome.lines)
    assert made.done.cell["reasons"]["failed"] == {
        "HTTP 500: scripted for bearer [key]": counts(made)["failed"]
    }


def test_a_key_that_is_not_set_is_a_mistake(serve, rig, monkeypatch):
    monkeypatch.delenv("LOAD_TEST_KEY", raising=False)
    with pytest.raises(CbbenchError, match="LOAD_TEST_KEY, which holds no key"):
        rig(serve().url, api_key_env="LOAD_TEST_KEY")


def test_150_users_are_150_requests_at_once(serve, rig):
    server = serve("--first-ms", "400")
    made = rig(server.url, users=150, num_prompts="150", output_len="1", num_warmups="0")
    assert made.play().code == 0
    assert server.log()["most"] == 150


def test_connections_are_kept_and_few(serve, rig):
    server = serve()
    made = rig(server.url, users=5, num_prompts="50", **WARM)
    made.play()
    around = 1 + 2 + 1  # what is served and taken, the metrics before and after, the log
    assert server.log()["sockets"] <= 5 + around


def test_a_killed_run_can_be_read_by_its_raw_rows(serve, rig):
    made = rig(serve().url, users=1, num_prompts="400", request_rate="100")
    made.start()
    while sum(path.read_bytes().count(b'"f":') for path in made.folder.glob("raw/*")) < 20:
        pass
    run = read_run(made.folder)
    (cell,) = run.results
    assert cell.counts.ok >= 20
    assert cell.counts.ok + cell.counts.cancelled == cell.counts.offered == 400
    assert cell.verdict.reasons[0] == "the recording was cut short"
    made.finish()


def test_what_the_server_shows_of_itself_is_in_the_report(serve, rig):
    made = rig(serve("--metrics").url, workers=2, num_prompts="4")
    made.play()
    server = made.done.cell["server"]
    assert (server["preemptions"], server["scrapes"] >= 2) == (0, True)
    assert made.done.cell["client"]["processes"] == 2
    assert made.done.cell["preemptions"]["total"] == 0
    report = (made.folder / "report.md").read_text()
    assert "\nThe client:\n" in report  # locust's client is certified by nobody
    assert "What the servers' own metrics said" in report


def test_what_no_client_can_know_is_null(serve, rig):
    made = rig(serve().url, num_prompts="4")
    made.play()
    cell = made.done.cell
    unknown = (
        "server",
        "queue_s",
        "preemptions",
        "ledger",
        "slot_utilisation",
        "kv_utilisation",
        "steps",
    )
    assert {name: cell[name] for name in unknown} == dict.fromkeys(unknown)
    json.dumps(made.done.run, allow_nan=False)
