"""What static and window batching share: a batch runs whole, to the end of its longest request.

Rows that have ended stay in the batch as padding, really computed; nobody joins before the end.
When a batch may start is the policy's own rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice

from engines.api import Blocked, End, RequestId
from engines.loop.executors.api import PaddingRow
from engines.loop.plan import Plan, View
from engines.loop.policies.orders import NOTHING_SERVED, Order, Served


@dataclass(frozen=True, slots=True)
class BatchState:
    """`rows` requests began together; 0 when no batch runs or has just ended."""

    rows: int = 0
    served: Served = NOTHING_SERVED


def run_batch(view: View, state: BatchState, order: Order) -> tuple[Plan, BatchState]:
    """The next step of the batch under way: each live row's remaining tokens, and the padding."""
    work = {sequence.request_id: sequence.num_remaining for sequence in view.running}
    context = max(sequence.num_computed for sequence in view.running)
    ended = state.rows - len(work)
    plan = Plan(work=work, padding=[PaddingRow(num_tokens=1, context=context)] * ended)
    served = order.charge(view, plan, state.served)
    return plan, state if served is state.served else replace(state, served=served)


def start_batch(
    view: View, state: BatchState, order: Order, max_num_seqs: int
) -> tuple[Plan, BatchState]:
    """Admits the first that fit, whole: memory for prompt and answer is reserved at once."""
    trial = view.trial()
    served = order.look(view, state.served)
    admit: dict[RequestId, int] = {}
    work: dict[RequestId, int] = {}
    for sequence in islice(order.candidates(view, served), max_num_seqs):
        positions = sequence.max_len - 1
        hit = trial.admit(sequence, reserve=positions)
        if hit is None:
            break
        admit[sequence.request_id] = positions
        work[sequence.request_id] = sequence.num_known - hit
    plan = Plan(admit=admit, work=work)
    return plan, BatchState(rows=len(admit), served=order.charge(view, plan, served))


def nothing_can_come(view: View) -> bool:
    """Whether waiting for more would be in vain: the source is blocked or at its end."""
    return isinstance(view.next_due, Blocked | End)
