"""The model of streams once more, by the letter of docs/stream-ids.md and as simply as it can be said: an oracle."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

LOWEST, HIGHEST = -(2**63), 2**63 - 1


def naive_shard(n: int, ignore_msb: int, token: int) -> int:
    """The token's place on the ring, as 64 bits of which the highest are struck out, as a share of what is left."""
    bits = format(token - LOWEST, "064b")[ignore_msb:]
    return int(Fraction(int(bits, 2), 2 ** len(bits)) * n)


def naive_place(ends: Sequence[int], token: int) -> int:
    """The one entry that covers a token: (end[i-1], end[i]]; entry 0 (last end, max] and [min, end[0]]."""
    covering = [i for i in range(1, len(ends)) if ends[i - 1] < token <= ends[i]]
    if token <= ends[0] or token > ends[-1]:
        covering.append(0)
    [place] = covering
    return place


def naive_replicas(owners: Sequence[tuple[int, str]], token: int, factor: int) -> list[str]:
    """SimpleStrategy: from the first ring token at or after this one on, the next hosts that were not met yet."""
    at = next((i for i, (end, _) in enumerate(owners) if end >= token), 0)
    met: dict[str, None] = {}
    for step in range(len(owners)):
        met.setdefault(owners[(at + step) % len(owners)][1])
        if len(met) == factor:
            break
    return list(met)


def naive_token(start: int, end: int, n: int, ignore_msb: int, of_shard: int) -> int:
    """The first token after `start` that the shard owns, up to `end`; else `end`.

    The range is walked from one place where shards change to the next; one that wraps, to the maximum, then from
    behind the minimum, which is no key's token.
    """
    parts = [(start + 1, end)] if start < end else [(start + 1, HIGHEST), (LOWEST + 1, end)]
    for first, last in parts:
        if first <= last and naive_shard(n, ignore_msb, first) == of_shard:
            return first
        block = 1 << 64 - ignore_msb
        begins_at = (first - LOWEST) // block
        for number in (begins_at, begins_at + 1):
            begins = LOWEST + number * block + -(-of_shard * block // n)
            if first <= begins <= last and naive_shard(n, ignore_msb, begins) == of_shard:
                return begins
    return end


def enumerated_token(start: int, end: int, n: int, ignore_msb: int, of_shard: int) -> int:
    """The same by looking at every single token, of which a block of shards must have few."""
    block = 1 << 64 - ignore_msb
    parts = [(start + 1, end)] if start < end else [(start + 1, HIGHEST), (LOWEST + 1, end)]
    for first, last in parts:
        for token in range(first, min(last, first + block) + 1):
            if naive_shard(n, ignore_msb, token) == of_shard:
                return token
    return end
