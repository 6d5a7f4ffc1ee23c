"""Breaks the loop on purpose, one line at a time, and sees the other tests fail.

A copy of the packages is changed, never the tree itself. Slow: run by hand with `pytest -m slow`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TESTS = [  # the quick ones first: the first failure ends the run
    *("policies", "kv", "test_verify.py", "test_kv.py", "test_contracts.py", "test_loop.py"),
    *("test_step_rows.py", "test_stalls.py", "test_state_machine.py", "test_invariants.py"),
]

MUTATIONS = {
    "victims are the oldest": (
        "policies/draft.py",
        "for sequence in reversed(self.view.running):",
        "for sequence in self.view.running:",
    ),
    "a preempted request may be preempted before it advances": (
        "policies/draft.py",
        "                and sequence.has_advanced\n",
        "",
    ),
    "the budget of a preempted request is not given back": (
        "policies/draft.py",
        "self.budget += self.work.pop(victim.request_id, 0)",
        "self.work.pop(victim.request_id, 0)",
    ),
    "admission goes on in a step that preempted": (
        "policies/draft.py",
        "            self.is_short = True\n",
        "",
    ),
    "admission reserves nothing": (
        "kv/paged.py",
        "        cache.reserved[name] = cache.blocks_for(reserve)",
        "        cache.reserved[name] = 0",
    ),
    "a full reservation is one position short": (
        "policies/admission.py",
        "        return trial.admit(sequence, sequence.max_len - 1)",
        "        return trial.admit(sequence, sequence.max_len - 2)",
    ),
    "a watermark locks out one who is alone": (
        "policies/admission.py",
        "0 if is_alone else math.ceil",
        "math.ceil",
    ),
    "the predicted peak forgets how answers grow": (
        "policies/admission.py",
        "trial.blocks_for(held + left * alive)",
        "trial.blocks_for(held)",
    ),
    "prompts run before decodes": (
        "policies/chunked.py",
        "(decodes if sequence.num_remaining == 1 else prefills).append(sequence)",
        "prefills.append(sequence)",
    ),
    "who waits at a door without a slot makes the budget scarce": (
        "policies/chunked.py",
        "min(len(view.running) + at_the_door, self.max_num_seqs) > draft.budget",
        "len(view.running) + at_the_door > draft.budget",
    ),
    "decodes beyond the budget never rotate": (
        "policies/chunked.py",
        "residents = sorted(view.running, key=_by_last_step)",
        "residents = list(view.running)",
    ),
    "one resident too many": (
        "policies/draft.py",
        "return self.num_residents < slots and has_share() and",
        "return self.num_residents <= slots and has_share() and",
    ),
    "one may take the place of an equal": (
        "policies/draft.py",
        "if order.rank(s, served)[0] > rank]",
        "if order.rank(s, served)[0] >= rank]",
    ),
    "residents leave for one who then does not fit": (
        "policies/draft.py",
        "        self.work, self.preempt, self.budget = work, preempt, budget\n"
        "        self._try_again()\n",
        "",
    ),
    "what a victim was given goes on counting": (
        "policies/draft.py",
        "if self.trial.leaves_a_trace(victim):",
        "if False:",
    ),
    "a prompt's share is judged before its hit is known": (
        "policies/draft.py",
        "hit > 0 and share",
        "False and share",
    ),
    "a victim that frees nothing is put out": (
        "policies/draft.py",
        "                and self.trial.frees(sequence)\n",
        "",
    ),
    "newcomers pass those who were swapped out": (
        "policies/orders.py",
        "        return merge(view.swapped, view.waiting, key=_by_arrival)",
        "        return iter(view.waiting)",
    ),
    "a resumed request has no room for its next token": (
        "policies/draft.py",
        "        if not self.trial.resume(sequence, reserve):",
        "        reserve = 0\n        if not self.trial.resume(sequence, reserve):",
    ),
    "fair forgets who comes back": (
        "policies/orders.py",
        "max(positions.get(name, 0.0), least)",
        "0.0",
    ),
    "fair never forgets who has left": (
        "policies/orders.py",
        "return present - gone",
        "return present",
    ),
    "prefill-first lets decodes go on beside prompts": (
        "policies/prefill_first.py",
        "        if not draft.newcomers:\n",
        "        if True:\n",
    ),
    "orca cuts prompts": (
        "policies/orca.py",
        "lambda remaining, _: remaining",
        "lambda remaining, _: min(remaining, 8)",
    ),
    "a block too late": (
        "kv/paged.py",
        "need = -(-(computed + n + lookahead) // self._cache.block_size) - len(table)",
        "need = (computed + n + lookahead) // self._cache.block_size - len(table)",
    ),
    "a block too early": (
        "kv/paged.py",
        "need = -(-(computed + n + lookahead) // self._cache.block_size) - len(table)",
        "need = 1 + (computed + n + lookahead) // self._cache.block_size - len(table)",
    ),
    "ended requests keep their last block": (
        "kv/paged.py",
        "for block in reversed(self.tables.pop(sequence.request_id)):",
        "for block in self.tables.pop(sequence.request_id)[:-1]:",
    ),
    "a trial is not undone": (
        "kv/paged.py",
        "self._cache.end_trial(undo=True)",
        "self._cache.end_trial(undo=False)",
    ),
    "a taken block is still a prefix": (
        "kv/paged.py",
        "self.pool.on_take = self._evict",
        "pass",
    ),
    "a full prefix hit leaves nothing to compute": (
        "kv/prefix.py",
        "range(size, len(tokens), size)",
        "range(size, len(tokens) + 1, size)",
    ),
    "a preempted request waits behind all others": (
        "roster.py",
        "self.waiting.add_preempted(sequence)",
        "self.waiting.add_fresh(sequence)",
    ),
    "a recomputed request keeps its progress": (
        "sequence.py",
        "            self.num_computed = 0\n        self._enter(Phase.PREEMPTED",
        "            pass\n        self._enter(Phase.PREEMPTED",
    ),
    "recomputed positions count as useful": (
        "ledger.py",
        "fresh_from = max(start, sequence.high_water)",
        "fresh_from = start",
    ),
    "the high-water mark stands still": (
        "step.py",
        "            sequence.high_water = sequence.num_computed",
        "            pass",
    ),
    "an answer is one token too long": (
        "step.py",
        "if len(tokens) >= room:",
        "if len(tokens) > room:",
    ),
    "a cancelled request keeps its memory": (
        "loop.py",
        'if place == "running":',
        'if place == "running" and status == "ok":',
    ),
    "the door lets in what fills one block too many": (
        "kv/paged.py",
        "if blocks <= self.num_blocks:",
        "if blocks <= self.num_blocks + 1:",
    ),
    "the door lets in a region that no pool has": (
        "kv/contiguous.py",
        "if blocks <= self.num_blocks:",
        "if blocks <= self.num_blocks + 1:",
    ),
    "the door turns away what just fits": (
        "admission.py",
        "self.cache.shortage(total - 1)",
        "self.cache.shortage(total)",
    ),
    "a region given up in a trial is not taken back": (
        "kv/contiguous.py",
        "self._undo.append(lambda: self._put_back(name, region))",
        "pass",
    ),
    "a region taken in a trial is not given back": (
        "kv/contiguous.py",
        "self._undo.append(lambda: self._forget(name))",
        "pass",
    ),
    "a region is reserved for the prompt only": (
        "kv/contiguous.py",
        "return self._region(sequence.max_len - 1)",
        "return self._region(sequence.prompt_len)",
    ),
    "a region grows beyond what was reserved": (
        "kv/contiguous.py",
        "<= len(region) * self._cache.block_size",
        "<= (len(region) + 1) * self._cache.block_size",
    ),
    "a region is given back but for its last block": (
        "kv/contiguous.py",
        "        region = self.tables.pop(sequence.request_id)\n"
        "        self.gaps.give(region.start, len(region))",
        "        region = self.tables.pop(sequence.request_id)\n"
        "        self.gaps.give(region.start, len(region) - 1)",
    ),
    "a gap that is just long enough counts as lost": (
        "kv/gaps.py",
        "for length in self._lengths if length < count)",
        "for length in self._lengths if length <= count)",
    ),
    "what a last block has left is not lost": (
        "kv/blocks.py",
        "begun += -sequence.num_computed % block_size",
        "begun += 0",
    ),
    "shared positions are held by each": (
        "kv/paged.py",
        "        held -= self.pool.extra_holders * self.block_size\n",
        "",
    ),
    "positions that come back from the host are not counted": (
        "roster.py",
        "        sequence.resume()\n",
        "",
    ),
    "gaps that touch stay apart": (
        "kv/gaps.py",
        "last = index + 1 if self._starts[index] == end else index",
        "last = index",
    ),
    "the verifier does not count residents": (
        "verify.py",
        "if resident > most:",
        "if False:",
    ),
    "the verifier does not look at the budget": (
        "verify.py",
        "if budget is not None and positions > budget:",
        "if False:",
    ),
    "ended rows are no padding": (
        "policies/request_level.py",
        "padding=[PaddingRow(num_tokens=1, context=context)] * ended",
        "padding=[]",
    ),
    "static does not wait for a full batch": (
        "policies/static.py",
        "view.num_waiting < self.max_num_seqs and not nothing_can_come(view)",
        "False",
    ),
    "a window opens anew for what queued behind a batch": (
        "policies/window.py",
        "queued_behind_a_batch = oldest.request.scheduled_s < view.last_end_s",
        "queued_behind_a_batch = False",
    ),
    "prompts before a request's last token count for its stall": (
        "sequence.py",
        "self._last_prompts_s = self._steps.prompts_s",
        "pass",
    ),
    "steps that left a request out are its own computing": (
        "stalls.py",
        "if worked_in < self._step - 1 else",
        "if False else",
    ),
    "a stall is as old as its preemption": (
        "stalls.py",
        "left_out_s = preempted.prompts_s - last.prompts_s",
        "left_out_s = 0.0",
    ),
    "a scheduled request is still counted as queued": (
        "loop.py",
        "running[name].schedule(self._step, now_s)",
        "pass",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_loop_is_caught(tmp_path, name):
    path, right, wrong = MUTATIONS[name]
    copy_packages(tmp_path)
    target = tmp_path / "engines" / "loop" / path
    text = target.read_text()
    assert text.count(right) == 1, f"the line to break is not there exactly once: {right!r}"
    target.write_text(text.replace(right, wrong))
    done = run_tests(tmp_path)
    assert done.returncode == 1, f"nobody noticed: {done.stdout[-2000:]}"


@pytest.mark.slow
def test_a_copy_that_is_not_broken_passes(tmp_path):
    """Else all the others would be caught for nothing."""
    copy_packages(tmp_path)
    done = run_tests(tmp_path)
    assert done.returncode == 0, done.stdout[-2000:]


def copy_packages(folder):
    for package in ("engines", "workloads"):
        shutil.copytree(ROOT / package, folder / package)


def run_tests(folder):
    tests = Path(__file__).parent
    return subprocess.run(
        [
            sys.executable,
            *("-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"),
            *("-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)),
            *(str(tests / test) for test in TESTS),
        ],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
