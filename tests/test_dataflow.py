"""Order, dependencies, FLOPs and kept tensors of lowered blocks, and the algebra behind merged gradients in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import make_scenario

from falsim.dataflow import Attention, Collective, Elementwise, Gemm, Graph, Group, Phase, Work
from falsim.engines.stream import run_pass
from falsim.program import Program
from falsim.program.counts import collective_counts
from falsim.program.flops import step_flops
from falsim.program.sharding import Run

ARCHITECTURES = ("gpt", "fal", "fal_plus", "parallel", "ladder", "no_sync")
PAYLOAD = 2 * 1024 * 1024 * 2.0
"""T·h·e of the scenario of conftest."""


def program(architecture: str, tensor: int = 2, *, sequence: bool = False, **sections: Any) -> Program:
    return Program(make_scenario(parallelism={"tensor": tensor, "sequence": sequence}, **sections), architecture)


def index_of(graph: Graph, name: str, phase: Phase = Phase.BACKWARD) -> int:
    return next(i for i, op in enumerate(graph.ops) if op.name == name and op.phase is phase)


def ancestors(graph: Graph, index: int) -> set[int]:
    seen: set[int] = set()
    stack = [index]
    while stack:
        for dep in graph.ops[stack.pop()].deps:
            if dep not in seen:
                seen.add(dep)
                stack.append(dep)
    return seen


def collectives(graph: Graph) -> list[int]:
    return [i for i, op in enumerate(graph.ops) if isinstance(op.work, Collective)]


@pytest.mark.parametrize("overlap", ["none", "wgrad", "async_tp"])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_no_op_comes_before_what_it_waits_for(architecture: str, sequence: bool, recompute: str, overlap: str) -> None:
    for merge in (True, False):
        p = program(
            architecture,
            sequence=sequence,
            training={"recompute": recompute, "attention": "unfused"},
            implementation={"overlap": overlap, "merge_partial_gradients": merge},
        )
        for kind in ("embedding", "first", "later", "last", "only", "head"):
            for graph in (p.blocks[kind].forward, p.blocks[kind].backward):
                assert all(dep < i for i, op in enumerate(graph.ops) for dep in op.deps)
                assert all(0 <= i < len(graph.ops) for i in (*graph.inputs.values(), *graph.outputs.values()))


@pytest.mark.parametrize("architecture", ["gpt", "fal", "fal_plus", "parallel"])
def test_a_blocks_outputs_are_its_successors_inputs(architecture: str) -> None:
    p = program(architecture)
    first, later, last = (p.blocks[kind] for kind in ("first", "later", "last"))
    assert set(first.forward.outputs) == set(later.forward.inputs) == set(later.forward.outputs)
    assert set(last.forward.outputs) == {"x"}
    assert set(later.backward.outputs) == set(later.backward.inputs) == set(first.backward.inputs)
    assert set(first.backward.outputs) == {"x"}


class Seconds:
    """Weight gradients by name cost their own seconds, each tensor collective `reduction`, everything else nothing."""

    def __init__(self, graph: Graph, reduction: float, weights: dict[str, float]) -> None:
        self.by_work = {
            id(op.work): weights.get(op.name, 0.0) for op in graph.ops if op.work is not None and op.name in weights
        }
        self.reduction = reduction

    def seconds(self, work: Work | None) -> float:
        if isinstance(work, Collective) and work.group is Group.TENSOR:
            return self.reduction
        return self.by_work.get(id(work), 0.0)

    def host_seconds(self, work: Work | None) -> float:
        return 0.0


def backward_seconds(architecture: str, reduction: float, overlap: str = "wgrad") -> float:
    graph = program(architecture, implementation={"overlap": overlap}).blocks["later"].backward
    weights = {"attention.qkv.weight_gradient": 3.0, "mlp.fc1.weight_gradient": 4.0}
    return run_pass([Run("later", graph, 1)], Seconds(graph, reduction, weights)).duration


@pytest.mark.parametrize("r", [1.0, 3.5, 5.0, 7.0, 20.0])
def test_gpt_hides_each_reduction_under_one_weight_gradient_and_fal_its_only_one_under_both(r: float) -> None:
    """wgrad(QKV) = 3 s, wgrad(fc1) = 4 s, an all-reduce r: gpt max(4, r) + max(3, r); fal max(7, r) (Megatron's
    order)."""
    assert backward_seconds("gpt", r) == pytest.approx(max(4.0, r) + max(3.0, r))
    assert backward_seconds("fal", r) == pytest.approx(max(7.0, r))
    assert backward_seconds("parallel", r) == pytest.approx(max(7.0, r))


@pytest.mark.parametrize(("architecture", "reductions"), [("gpt", 2), ("fal", 1), ("parallel", 1)])
def test_without_overlap_weight_gradients_wait(architecture: str, reductions: int) -> None:
    assert backward_seconds(architecture, 5.0, "none") == pytest.approx(7.0 + reductions * 5.0)


@pytest.mark.parametrize("architecture", ["gpt", "fal", "parallel", "ladder", "fal_plus"])
def test_the_reduction_is_launched_before_the_weight_gradients_that_hide_it(architecture: str) -> None:
    graph = program(architecture).blocks["later"].backward
    for name in ("attention.qkv", "mlp.fc1"):
        weight = index_of(graph, f"{name}.weight_gradient")
        data = index_of(graph, f"{name}.input_gradient")
        launched = [i for i in collectives(graph) if data in ancestors(graph, i)]
        assert launched
        assert min(launched) < weight
        assert not set(launched) & ancestors(graph, weight)


def test_fal_reduces_attention_and_mlp_once_both_ways() -> None:
    block = program("fal").blocks["later"]
    for graph in (block.forward, block.backward):
        (reduction,) = collectives(graph)
        before = {graph.ops[i].name for i in ancestors(graph, reduction)}
        assert any(name.startswith("attention.") for name in before)
        assert any(name.startswith("mlp.") for name in before)


def test_ladder_awaits_each_reduction_one_sub_block_later() -> None:
    """Forward: the MLP does not wait for its attention's reduction, nor the next attention for the MLP's; backward
    alike."""
    block = program("ladder").blocks["later"]
    graph = block.forward
    attention, mlp = collectives(graph)
    assert attention not in ancestors(graph, index_of(graph, "mlp.fc2", Phase.FORWARD))
    assert mlp not in ancestors(graph, graph.outputs["n"])
    assert graph.outputs["m"] == mlp
    assert attention in ancestors(graph, graph.outputs["u"])
    graph = block.backward
    mlp, attention = collectives(graph)  # the MLP is differentiated first
    assert mlp not in ancestors(graph, index_of(graph, "attention.qkv.input_gradient"))
    assert mlp in ancestors(graph, graph.outputs["m"])
    assert graph.outputs["n"] == attention
    assert attention not in ancestors(graph, graph.outputs["m"])


# FLOPs

T, H, S = 2048.0, 1024.0, 1024.0


def matrix_flops(graph: Graph, phase: Phase = Phase.FORWARD) -> float:
    return float(sum(op.work.flops for op in graph.ops if isinstance(op.work, Gemm | Attention) and op.phase is phase))


@pytest.mark.parametrize("tensor", [1, 2, 8])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_forward_flops_of_a_block_over_all_ranks(architecture: str, tensor: int) -> None:
    """QKV 6, out 2, fc1 8, fc2 8 = 24·T·h²; scores and values 4·T·s·h: together 24·T·h²(1 + s/6h)."""
    p = program(architecture, tensor)
    for kind in ("first", "later", "last", "only"):
        assert tensor * matrix_flops(p.blocks[kind].forward) == pytest.approx(24 * T * H**2 * (1 + S / (6 * H)))


@pytest.mark.parametrize(("attention", "factor"), [("flash", 2.5), ("unfused", 2.0)])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_backward_is_two_products_for_each_forward_one(architecture: str, attention: str, factor: float) -> None:
    """Flash attention recomputes the scores inside its backward: 2.5 times its forward."""
    p = program(architecture, training={"attention": attention})
    graph = p.blocks["later"].backward
    expected = (2 * 24 * T * H**2 + factor * 4 * T * S * H) / 2
    assert matrix_flops(graph, Phase.BACKWARD) == pytest.approx(expected)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_full_recompute_repeats_the_forward_flops(architecture: str) -> None:
    p = program(architecture, training={"recompute": "full"})
    block = p.blocks["later"]
    assert matrix_flops(block.backward, Phase.RECOMPUTE) == pytest.approx(matrix_flops(block.forward))


def test_grouped_queries_gates_and_experts_have_their_own_flops() -> None:
    """h = 1024, 16 query and 4 KV heads of 64, f = 3000 gated, 8 experts of which 2 see a token, TP 2, T = 2048."""
    model = {
        "num_key_value_heads": 4,
        "mlp": "swiglu",
        "intermediate_size": 3000,
        "num_experts": 8,
        "num_experts_per_token": 2,
    }
    graph = program("gpt", model=model).blocks["later"].forward
    qkv = 2 * T * H * (1024 + 2 * 256)
    out = 2 * T * 1024 * H
    scores = 4 * T * S * 1024
    experts = 2 * 3 * T * 2 * H * 3000
    router = 2 * T * H * 8  # every rank routes all of its tokens
    assert 2 * matrix_flops(graph) == pytest.approx(qkv + out + scores + experts + 2 * router)


def test_key_value_heads_are_replicated_where_there_are_fewer_than_ranks() -> None:
    """TP 8 with 2 KV heads: every rank has 2 query heads and one whole KV head: QKV width (2 + 2)·64."""
    graph = program("gpt", 8, model={"num_key_value_heads": 2}).blocks["later"].forward
    work = graph.ops[index_of(graph, "attention.qkv", Phase.FORWARD)].work
    assert isinstance(work, Gemm)
    assert (work.m, work.n, work.k) == (T, 256.0, H)


def test_model_flops_of_a_step() -> None:
    """L = 4, V = 32000, one micro-batch: 3 × (4 · 24·T·h²(1 + s/6h) + 2·T·h·V); causal halves the scores, 4·T·s·h
    each."""
    scenario = make_scenario()
    products, scores, head = 4 * 24 * T * H**2, 4 * 4 * T * S * H, 2 * T * H * 32000
    flops = step_flops(scenario)
    assert flops.model == pytest.approx(3 * (products + scores + head))
    assert flops.model_causal == pytest.approx(3 * (products + scores / 2 + head))
    assert flops.hardware == pytest.approx(flops.model)
    full = step_flops(make_scenario(training={"recompute": "full"}))
    assert full.hardware == pytest.approx(flops.model + products + scores)
    selective = step_flops(make_scenario(training={"recompute": "selective", "attention": "unfused"}))
    assert selective.hardware == pytest.approx(flops.model + scores)


# Kept tensors


@pytest.mark.parametrize("tensor", [1, 2, 8])
def test_a_gpt_block_keeps_what_the_literature_counts(tensor: int) -> None:
    """Korthikanti et al. (arXiv 2205.05198, equation 2): s·b·h(10 + 24/t) without the score term, of which 2 are
    dropout masks GPT without dropout has not: x, N1x, y, N2y whole, qkv (3), core, fc1 and activation (4 + 4)
    sharded, at 2 bytes; flash attention keeps one float32 a row and head."""
    tokens_hidden = T * H
    statistics = 4.0 * T * 16 / tensor
    kept = program("gpt", tensor).blocks["later"].saved_bytes
    assert kept == pytest.approx(tokens_hidden * (8 + 24 / tensor) + statistics)


def test_sequence_parallelism_shards_all_that_is_kept() -> None:
    """Equation 4: 34/t, less the masks: 32/t."""
    kept = program("gpt", 8, sequence=True).blocks["later"].saved_bytes
    assert kept == pytest.approx(T * H * 32 / 8 + 4.0 * T * 16 / 8)


@pytest.mark.parametrize("tensor", [1, 2, 8])
def test_a_later_fal_block_keeps_one_tensor_less_than_gpt(tensor: int) -> None:
    """y is not there: x is the input of both norms."""
    gpt, fal = (program(name, tensor).blocks["later"].saved_bytes for name in ("gpt", "fal"))
    assert gpt - fal == pytest.approx(PAYLOAD)


def test_unfused_attention_keeps_its_scores_unless_they_are_recomputed() -> None:
    """b·heads·s²·e, all of it gone under selective recompute."""
    kept, selective, flash = (
        program("gpt", training=training).blocks["later"].saved_bytes
        for training in ({"attention": "unfused"}, {"attention": "unfused", "recompute": "selective"}, {})
    )
    assert kept - selective == pytest.approx(2 * 8 * 1024**2 * 2.0)
    assert flash - selective == pytest.approx(4.0 * T * 8)


def test_norms_do_not_shrink_with_tensor_parallelism() -> None:
    for tensor in (1, 2, 8):
        works = [op.work for op in program("gpt", tensor).blocks["later"].forward.ops if op.name == "norm"]
        assert [w.bytes for w in works if isinstance(w, Elementwise)] == [2 * PAYLOAD] * 2


# The algebra, in float64: n ranks, column- then row-parallel linears, FAL's blocks, gradients by hand.


def norm(x: np.ndarray, gain: np.ndarray) -> tuple[np.ndarray, Any]:
    centred = x - x.mean(-1, keepdims=True)
    scale = 1.0 / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    hat = centred * scale
    return hat * gain, (hat, scale, gain)


def norm_backward(dy: np.ndarray, kept: Any) -> tuple[np.ndarray, np.ndarray]:
    """(input gradient, gain gradient); linear in dy, so it may run on a partial sum."""
    hat, scale, gain = kept
    d = dy * gain
    dx = scale * (d - d.mean(-1, keepdims=True) - hat * (d * hat).mean(-1, keepdims=True))
    return dx, (dy * hat).sum(0)


class Ranks:
    """n simulated ranks; a partial sum is a list of n arrays, `reduce` adds and counts them."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.forward_reductions = self.backward_reductions = 0

    def linears(self, x: np.ndarray, first: np.ndarray, second: np.ndarray) -> tuple[list[np.ndarray], Any]:
        """Column-parallel, tanh, row-parallel: partial outputs."""
        columns, rows = np.split(first, self.n, 1), np.split(second, self.n, 0)
        hidden = [np.tanh(x @ c) for c in columns]
        return [u @ r for u, r in zip(hidden, rows, strict=True)], (x, hidden, columns, rows)

    def linears_backward(self, dy: np.ndarray, kept: Any) -> tuple[list[np.ndarray], np.ndarray]:
        """Partial input gradients, and the first matrix's gradient."""
        _, hidden, columns, rows = kept
        pre = [(dy @ r.T) * (1 - u**2) for u, r in zip(hidden, rows, strict=True)]
        return [p @ c.T for p, c in zip(pre, columns, strict=True)], np.concatenate([kept[0].T @ p for p in pre], 1)

    def reduce(self, parts: list[np.ndarray], *, backward: bool = False) -> np.ndarray:
        if backward:
            self.backward_reductions += 1
        else:
            self.forward_reductions += 1
        return np.sum(parts, 0)


def fal(n: int, *, merge: bool, blocks: int = 4) -> tuple[Ranks, dict[str, np.ndarray]]:
    """Loss = Σ c·x_L of FAL; its gradients of x, of block 3's norms and first matrices, of Nf's gain."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 8))
    loss = rng.normal(size=(5, 8))
    weights = [[rng.normal(size=s) / 3 for s in ((8, 16), (16, 8), (8, 16), (16, 8))] for _ in range(blocks)]
    gains = [[1 + rng.normal(size=8) / 4 for _ in range(2)] for _ in range(blocks)]
    gain_f = 1 + rng.normal(size=8) / 4
    ranks = Ranks(n)
    kept: list[Any] = []
    for i in range(blocks):
        n1, k1 = norm(x, gains[i][0])
        parts, ka = ranks.linears(n1, *weights[i][:2])
        if i == 0:
            a1 = ranks.reduce(parts)
            g, kf = norm(a1, gain_f)
            x = x + a1
            n2, k2 = norm(x, gains[i][1])
            parts, km = ranks.linears(n2, *weights[i][2:])
            x = x + ranks.reduce(parts)
        else:
            n2, k2 = norm(x, gains[i][1])
            more, km = ranks.linears(n2 + g, *weights[i][2:])
            x = x + ranks.reduce([a + b for a, b in zip(parts, more, strict=True)])
        kept.append((k1, ka, k2, km))
    dx = loss
    dg_parts = [np.zeros_like(x)] * n
    dg = np.zeros_like(x)
    out: dict[str, np.ndarray] = {}
    for i in reversed(range(blocks)):
        k1, ka, k2, km = kept[i]
        if i == 0:
            parts, _ = ranks.linears_backward(dx, km)
            dx = dx + norm_backward(ranks.reduce(parts, backward=True), k2)[0]
            if merge:
                dg = ranks.reduce(dg_parts, backward=True)
            da, out["Nf"] = norm_backward(dg, kf)
            parts, out["attention"] = ranks.linears_backward(dx + da, ka)
            dx = dx + norm_backward(ranks.reduce(parts, backward=True), k1)[0]
            continue
        mlp, _ = ranks.linears_backward(dx, km)
        attention, _ = ranks.linears_backward(dx, ka)
        if merge:
            dg_parts = [a + b for a, b in zip(dg_parts, mlp, strict=True)]
            second, first = ([norm_backward(p, k) for p in ps] for ps, k in ((mlp, k2), (attention, k1)))
            dx = dx + ranks.reduce([a[0] + b[0] for a, b in zip(first, second, strict=True)], backward=True)
            norms = [np.sum([p[1] for p in ps], 0) for ps in (first, second)]  # the small all-reduce
        else:
            whole = [ranks.reduce(ps, backward=True) for ps in (attention, mlp)]
            dg = dg + whole[1]
            (d1, first_gain), (d2, second_gain) = (norm_backward(w, k) for w, k in zip(whole, (k1, k2), strict=True))
            dx = dx + d1 + d2
            norms = [first_gain, second_gain]
        out[f"N1.{i}"], out[f"N2.{i}"] = norms
    out["x"] = dx
    out["loss"] = np.sum(loss * x)
    return ranks, out


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("merge", [True, False])
def test_gradients_are_those_of_one_gpu_with_exactly_the_inferred_reductions(n: int, merge: bool) -> None:
    _, alone = fal(1, merge=False)
    ranks, out = fal(n, merge=merge)
    for name, gradient in alone.items():
        scale = np.abs(gradient).max()
        assert np.abs(out[name] - gradient).max() <= 1e-13 * scale, name
    scenario = make_scenario(parallelism={"tensor": n}, implementation={"merge_partial_gradients": merge})
    counts = collective_counts(Program(scenario, "fal"))  # four blocks, as here
    assert counts.forward.count == ranks.forward_reductions
    assert counts.backward.count == ranks.backward_reductions
