"""How many collectives a step issues and of what size, per micro-batch, as every rank of a group sees it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from falsim.dataflow import Collective, CollectiveKind, Graph, Group, Number, Phase
from falsim.program.around import step_work
from falsim.program.step import Program


@dataclass(frozen=True)
class Tally:
    """Number of collectives and the bytes of their tensors, by kind."""

    by_kind: dict[CollectiveKind, tuple[Number, Number]] = field(default_factory=dict)

    @property
    def count(self) -> Number:
        """Collectives of any kind."""
        return sum(count for count, _ in self.by_kind.values())

    @property
    def bytes(self) -> Number:
        """Bytes of their tensors: what an all-reduce reduces, what an all-gather has gathered."""
        return sum(size for _, size in self.by_kind.values())


@dataclass(frozen=True)
class CollectiveCounts:
    """Tensor-parallel collectives per micro-batch, summed over the pipeline; `backward` includes `recompute`."""

    forward: Tally
    backward: Tally
    recompute: Tally
    other_forward: Tally
    """Of the embedding and the head."""
    other_backward: Tally
    other_per_step: Tally
    """Norm gradients, tied embedding, gradient norm: once a step, not per micro-batch."""
    expert: Tally
    """All-to-alls of experts, forward and backward."""


def collective_counts(program: Program) -> CollectiveCounts:
    """Count the collectives of a program's graphs; the no-synchronisation bound has no tensor-parallel ones."""
    stages = range(len(program.stages))
    forward = [(run.kind, run.graph, run.count) for stage in stages for run in program.forward(stage)]
    backward = [(run.kind, run.graph, run.count) for stage in stages for run in program.backward(stage)]
    if program.architecture.free_collectives:
        none = Tally()
        return CollectiveCounts(none, none, none, none, none, none, _tally(_works([*forward, *backward], Group.EXPERT)))
    ends = ("embedding", "head")
    blocks = [[item for item in items if item[0] not in ends] for items in (forward, backward)]
    outside = [[item for item in items if item[0] in ends] for items in (forward, backward)]
    return CollectiveCounts(
        forward=_tally(_works(blocks[0])),
        backward=_tally(_works(blocks[1])),
        recompute=_tally(_works(blocks[1], phase=Phase.RECOMPUTE)),
        other_forward=_tally(_works(outside[0])),
        other_backward=_tally(_works(outside[1])),
        other_per_step=_tally((work, 1) for work in step_work(program).other),
        expert=_tally(_works([*forward, *backward], Group.EXPERT)),
    )


def _works(
    items: Iterable[tuple[str, Graph, int]], group: Group = Group.TENSOR, phase: Phase | None = None
) -> Iterator[tuple[Collective, Number]]:
    for _, graph, count in items:
        for op in graph.collectives():
            if isinstance(op.work, Collective) and op.work.group is group and phase in (None, op.phase):
                yield op.work, op.share * count


def _tally(works: Iterable[tuple[Collective, Number]]) -> Tally:
    by_kind: dict[CollectiveKind, tuple[Number, Number]] = {}
    for work, count in works:
        number, size = by_kind.get(work.kind, (0.0, 0.0))
        by_kind[work.kind] = number + count, size + work.bytes * count
    return Tally(by_kind)
