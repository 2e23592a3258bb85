"""Runs of equal pieces, and what ZeRO-3 (FSDP) adds: parameters gathered one piece ahead, gradients scattered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from falsim.dataflow import Collective, CollectiveKind, Graph, Op, Phase
from falsim.program.blocks import BlockKind

PARAMETERS = "parameters"


@dataclass(frozen=True)
class Run:
    """`count` equal pieces one after the other: a graph whose outputs are the next one's inputs."""

    kind: BlockKind
    graph: Graph
    count: int


class Shards(Protocol):
    """The collectives over the shards of one piece: its dense weights, and its experts where they are replicated."""

    def __call__(self, piece: BlockKind, kind: CollectiveKind) -> tuple[Collective, ...]:
        """Gathers of its parameters, or scatters of its gradients."""


def gather_parameters(runs: Sequence[Run], shards: Shards, *, scatter: bool) -> Iterator[Run]:
    """The runs of one pass with ZeRO-3's collectives.

    While a piece computes, the next one's parameters are gathered; the first gather of a pass is exposed. With
    `scatter` (backward) each piece's gradients are reduce-scattered behind it
    (PyTorch FSDP, arXiv 2304.11277, section 3.3).
    """
    pieces = [piece for run in runs for piece in _split_last(run)]
    sized = [piece for piece in pieces if piece.kind != "boundary"]
    phase = Phase.BACKWARD if scatter else Phase.FORWARD
    first = tuple(
        Op("parameters.all_gather", work, phase, (), PARAMETERS)
        for work in shards(sized[0].kind, CollectiveKind.ALL_GATHER)
    )
    yield Run("boundary", Graph(first, {}, {PARAMETERS: len(first) - 1}), 1)
    for index, piece in enumerate(pieces):
        if piece.kind == "boundary":
            yield piece
            continue
        following = [later.kind for later in pieces[index + 1 :] if later.kind != "boundary"]
        ahead = piece.kind if piece.count > 1 else (following[0] if following else None)
        gathers = () if ahead is None else shards(ahead, CollectiveKind.ALL_GATHER)
        graph = _with_gathers(piece.graph, gathers, phase)
        if scatter:
            graph = _with_scatters(graph, shards(piece.kind, CollectiveKind.REDUCE_SCATTER))
        yield replace(piece, graph=graph)


def _split_last(run: Run) -> Iterator[Run]:
    """The last piece of a run stands apart: what follows it is of another size."""
    if run.count > 1:
        yield replace(run, count=run.count - 1)
    yield replace(run, count=1)


def _with_gathers(graph: Graph, gathers: Sequence[Collective], phase: Phase) -> Graph:
    """Every op waits for this piece's parameters; the next piece's are gathered from when this one starts.

    Gathers run in order on one stream, so the last one's end is that of all.
    """
    given = next((index for index, op in enumerate(graph.ops) if op.work is not None), len(graph.ops))

    def place(index: int) -> int:
        return index + 1 + (len(gathers) if index >= given else 0)

    ops = [Op(PARAMETERS, None, phase), *graph.ops[:given]]
    ops += [Op("parameters.all_gather", work, phase, tuple(range(given + 1)), PARAMETERS) for work in gathers]
    ops += [replace(op, deps=(0, *map(place, op.deps))) for op in graph.ops[given:]]
    inputs = {name: place(index) for name, index in graph.inputs.items()}
    outputs = {name: place(index) for name, index in graph.outputs.items()}
    if gathers:
        outputs[PARAMETERS] = given + len(gathers)
    return Graph(tuple(ops), inputs | {PARAMETERS: 0}, outputs)


def _with_scatters(graph: Graph, scatters: Sequence[Collective]) -> Graph:
    last = len(graph.ops) - 1
    ops = [Op("gradients.reduce_scatter", work, Phase.BACKWARD, (last,), "gradients") for work in scatters]
    return replace(graph, ops=(*graph.ops, *ops))
