"""What backward needs from forward: the tensors kept, and the replay of a block that keeps only its inputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from falsim.dataflow.arrays import Number
from falsim.dataflow.block import NodeKind, Tensor
from falsim.dataflow.lowering import SEQ, Forward, P, R
from falsim.dataflow.ops import Graph, Phase, Placement


def saved_tensors(forward: Forward) -> Iterator[tuple[Tensor, Number]]:
    """Tensors that backward reads, each once, with its bytes on one rank.

    A linear keeps its input, a norm its input, an element-wise op its input; a sum keeps nothing. What a norm made
    from a tensor gathered along the sequence is made again, not kept.
    """
    expression = forward.expression
    seen: set[int] = set()
    for node in expression.nodes:
        if node.kind in (NodeKind.INPUT, NodeKind.SUM, NodeKind.SYNC):
            continue
        for source in expression.inputs(node):
            rebuilt = expression.dims.sequence_parallel and node.kind is NodeKind.COLUMN and _is_whole(forward, source)
            if source.index not in seen and not rebuilt:
                seen.add(source.index)
                yield source, forward.bytes_at(source, _kept_placement(forward, source))


def _is_whole(forward: Forward, tensor: Tensor) -> bool:
    return forward.native[tensor.index] is R


def _kept_placement(forward: Forward, tensor: Tensor) -> Placement:
    native = forward.native[tensor.index]
    return forward.expression.home if native in (P, SEQ) else native


def _made_by(forward: Forward, tensor: Tensor) -> int:
    versions = forward.versions[tensor.index]
    return versions.get(_kept_placement(forward, tensor), max(versions.values()))


def saved_bytes(forward: Forward) -> Number:
    """Bytes one block keeps on one rank for its backward pass, without recompute."""
    kept: Number = 0.0
    for _, size in saved_tensors(forward):
        kept = kept + size
    for node in forward.expression.nodes:
        kept = kept + node.saved_bytes
    return kept


def replay(forward: Forward, graph: Graph, *, early_stop: bool) -> Graph:
    """The forward ops again, as part of backward; `early_stop` ends at the last tensor backward reads.

    PyTorch's non-reentrant checkpoint stops there (torch.utils.checkpoint, `_StopRecomputationError`); Megatron-LM's
    replays the whole block.
    """
    ops = [replace(op, phase=Phase.RECOMPUTE) for op in graph.ops]
    if early_stop:
        needed = [_made_by(forward, tensor) for tensor, _ in saved_tensors(forward)]
        ops = ops[: max(needed) + 1]
    return Graph(tuple(ops), graph.inputs, {})


def before(first: Graph, second: Graph) -> Graph:
    """`first` and then `second` as one graph with the inputs and outputs of `second`; inputs of `first` are at hand."""
    given = set(first.inputs.values())
    kept = [index for index in range(len(first.ops)) if index not in given]
    place = {old: new for new, old in enumerate(kept)}
    ops = [replace(first.ops[i], deps=tuple(place[d] for d in first.ops[i].deps if d in place)) for i in kept]
    shift = len(ops)
    ops += [replace(op, deps=tuple(d + shift for d in op.deps)) for op in second.ops]
    return Graph(
        tuple(ops),
        {name: op + shift for name, op in second.inputs.items()},
        {name: op + shift for name, op in second.outputs.items()},
    )
