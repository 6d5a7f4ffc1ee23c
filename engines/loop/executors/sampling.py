"""The next token from logits, the same whatever the schedule and the batch.

Greedy takes the highest logit. Else the Gumbel-max trick: the token with the highest
`logit / temperature + gumbel noise`, which is a draw from the softmax. The noise is a counter-based
hash of (seed, request id, position, token id), so it needs no generator and no state, and a row's
token depends on that row alone. Of equal scores the lowest token id wins, on every path.

Hash: blake2b of the row's key gives 64 bits; splitmix64's output function (Steele, Lea, Flood 2014)
of `key + (id + 1) * golden gamma` gives 64 for a token, whose top 53 are the uniform.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import blake2b

import torch

from engines.api import RequestId, Sampling

_GAMMA = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


def choose_tokens(
    logits: torch.Tensor,
    samplings: Sequence[Sampling],
    request_ids: Sequence[RequestId],
    positions: Sequence[int],
    forbidden: Sequence[Collection[int]] = (),
) -> torch.Tensor:
    """[n] token ids, on the logits' device, from `logits` [n, vocabulary].

    `positions[i]` is the position of the new token in its sequence; with the request's id and
    its sampling's seed it keys the noise of row i. No id of `forbidden[i]`, if given, is chosen.
    """
    if any(forbidden):
        logits = _without(logits, forbidden)
    tokens = torch.argmax(logits, dim=-1)
    for row, sampling in enumerate(samplings):
        if sampling.temperature > 0:
            name = request_ids[row] if sampling.noise_id is None else sampling.noise_id
            key = noise_key(sampling.seed, name, positions[row])
            tokens[row] = torch.argmax(scores_of(logits[row], sampling, key))
    return tokens


def scores_of(logits: torch.Tensor, sampling: Sampling, key: int) -> torch.Tensor:
    """[vocabulary] of which the highest is the next token: logits, or a draw's noisy scores."""
    if not sampling.temperature > 0:
        return logits
    scores = logits.double() / sampling.temperature
    scores = scores.masked_fill(~_kept(scores, sampling), float("-inf"))
    return scores + gumbel_noise(key, len(scores), scores.device)


def _without(logits: torch.Tensor, forbidden: Sequence[Collection[int]]) -> torch.Tensor:
    """A copy in which no row can choose what it must not."""
    logits = logits.clone()
    for row, token_ids in enumerate(forbidden):
        known = [token_id for token_id in token_ids if token_id < logits.shape[1]]
        if known:
            logits[row, known] = float("-inf")
    return logits


def noise_key(seed: int, request_id: RequestId, position: int) -> int:
    """64 bits that stand for one draw."""
    text = f"{seed}\0{position}\0{request_id}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


def gumbel_noise(key: int, count: int, device: torch.device) -> torch.Tensor:
    """[count] float64 standard Gumbel values, of which entry i depends on `key` and i alone."""
    return -torch.log(-torch.log(uniforms(key, count, device)))


def uniforms(key: int, count: int, device: torch.device) -> torch.Tensor:
    """[count] float64 values strictly between 0 and 1."""
    counter = torch.arange(1, count + 1, dtype=torch.int64, device=device)
    bits = counter * _signed(_GAMMA) + _signed(key)  # int64 wraps as the unsigned would
    bits = (bits ^ _shift_right(bits, 30)) * _signed(_MIX_1)
    bits = (bits ^ _shift_right(bits, 27)) * _signed(_MIX_2)
    bits = bits ^ _shift_right(bits, 31)
    # The half keeps 0 out; the clamp keeps 1 out, to which the highest value would round.
    value = (_shift_right(bits, 11).double() + 0.5) * 2.0**-53
    return value.clamp(max=1.0 - 2.0**-53)


def _kept(scores: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """[vocabulary] true for the tokens that top-k, and then top-p of those, leave.

    Of equal scores the lower ids come first. Top-p keeps a token if those before it hold less
    than p, so at least one stays.
    """
    kept = torch.ones_like(scores, dtype=torch.bool)
    if sampling.top_k <= 0 and sampling.top_p >= 1:
        return kept
    ordered, ids = torch.sort(scores, descending=True, stable=True)
    stays = torch.ones_like(kept)
    if sampling.top_k > 0:
        stays[sampling.top_k :] = False
        ordered = ordered.masked_fill(~stays, float("-inf"))
    if sampling.top_p < 1:
        weights = torch.softmax(ordered, dim=-1)
        before = torch.cumsum(weights, dim=-1) - weights
        stays &= before < sampling.top_p
        stays[0] = True
    kept[ids] = stays
    return kept


def _shift_right(bits: torch.Tensor, count: int) -> torch.Tensor:
    """The logical shift, which torch's int64 does not have."""
    return (bits >> count) & ((1 << (64 - count)) - 1)


def _signed(value: int) -> int:
    """The int64 with the bits of an unsigned 64-bit number."""
    return value - (1 << 64) if value >= 1 << 63 else value
