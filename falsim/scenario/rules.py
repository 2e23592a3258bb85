"""The rules between fields of a scenario: what must divide what, and which switches need each other.

Each rule reports through `Report.add`, naming the values it compares, the one most to blame first.
"""

import math
from dataclasses import dataclass

from falsim.catalog.entries import Gpu, Model
from falsim.scenario.presets import GPU
from falsim.scenario.report import Report
from falsim.scenario.schema import IntraNode, Parallelism, Training
from falsim.scenario.written import ClusterFields, MeasuredFields
from falsim.yaml_source import Path

MAX_GPUS = 10_000_000
MAX_LAYERS = 100_000
MAX_MICRO_BATCHES = 1_000_000
MAX_LAYER_CHUNKS = 256


@dataclass(frozen=True)
class Draft:
    """A scenario about to be checked; None is a part whose own problem was already reported."""

    cluster: ClusterFields
    parallelism: Parallelism
    training: Training
    measured: MeasuredFields | None
    model: Model | None
    gpu: Gpu | None
    intra_node: IntraNode | None


def check_rules(draft: Draft, report: Report) -> None:
    """Report every rule the scenario breaks."""
    _check_sizes(draft, report)
    _check_cluster(draft, report)
    _check_pipeline_schedule(draft, report)
    _check_batch(draft, report)
    _check_sequence(draft, report)
    if draft.model is not None:
        _check_model(draft.model, report)
        _check_tensor(draft.model, draft.parallelism, report)
        _check_layers(draft.model, draft.parallelism, report)
        _check_experts(draft.model, draft.parallelism, report)
        _check_positions(draft.model, draft.training, report)
    if draft.gpu is not None and draft.training.precision not in draft.gpu.peak_flops:
        able = ", ".join(draft.gpu.peak_flops)
        message = f"{draft.gpu.title} does not compute in {draft.training.precision} (choose from {able})"
        report.add(message, _training("precision"), (*GPU, "preset"), (*GPU, "peak_flops"))
    if draft.measured is not None and not (
        draft.measured.step_time or draft.measured.tokens_per_s_per_gpu or draft.measured.mfu
    ):
        report.add("measured holds no value (give step_time, tokens_per_s_per_gpu or mfu)", ("measured",))


def _check_sizes(draft: Draft, report: Report) -> None:
    """Products of fields that each may be large, but not all at once."""
    cluster, split, training = draft.cluster, draft.parallelism, draft.training
    gpus = cluster.gpus_per_node * cluster.nodes
    if gpus > MAX_GPUS:
        message = f"nodes {cluster.nodes} × gpus_per_node {cluster.gpus_per_node} = {gpus} GPUs (at most {MAX_GPUS:,})"
        paths = [("cluster", name) for name in ("nodes", "gpus_per_node")]
        report.add(message, *sorted(paths, key=lambda path: -getattr(cluster, path[1])))
    if split.layer_chunks > MAX_LAYER_CHUNKS:
        product = f"pipeline {split.pipeline} × virtual_pipeline {split.virtual_pipeline} = {split.layer_chunks}"
        message = f"{product} is more than {MAX_LAYER_CHUNKS:,} (at most that many)"
        report.add(message, *_above_one_first(split, "pipeline", "virtual_pipeline"))
    micro_batches = training.global_batch_size // (split.data * training.micro_batch_size)
    if micro_batches > MAX_MICRO_BATCHES:
        message = (
            f"global_batch_size {training.global_batch_size} / (data {split.data} × micro_batch_size "
            f"{training.micro_batch_size}) = {micro_batches} micro-batches per step (at most {MAX_MICRO_BATCHES:,})"
        )
        others = (_training("micro_batch_size"), _parallelism("data"))
        report.add(message, _training("global_batch_size"), *others)


def _check_cluster(draft: Draft, report: Report) -> None:
    cluster, split = draft.cluster, draft.parallelism
    gpus = cluster.gpus_per_node * cluster.nodes
    without_data = split.tensor * split.context * split.pipeline
    if without_data * split.data != gpus:
        right = (
            f"data: {gpus // without_data} would use them all"
            if gpus % without_data == 0
            else f"tensor × context × pipeline must divide {gpus}"
        )
        message = (
            f"tensor {split.tensor} × context {split.context} × pipeline {split.pipeline} × data {split.data} = "
            f"{without_data * split.data}, but the cluster has {gpus} GPUs ({right})"
        )
        blamed = _above_one_first(split, "data", "pipeline", "context", "tensor")
        report.add(message, *blamed, ("cluster", "gpus_per_node"), ("cluster", "nodes"))
    if cluster.nodes > 1 and cluster.inter_node is None:
        message = f"{cluster.nodes} nodes need cluster.inter_node (name a link, for example infiniband-400g)"
        report.add(message, ("cluster", "inter_node"), ("cluster", "nodes"))
    if cluster.gpus_per_node > 1 and cluster.intra_node is None:
        gpus = cluster.gpus_per_node
        message = f"{gpus} GPUs in a node need cluster.intra_node (name a node or link, for example nvlink4-nvswitch)"
        report.add(message, ("cluster", "intra_node"), ("cluster", "gpus_per_node"))
    links = draft.intra_node
    if links is not None and links.topology == "pairs" and links.between_pairs is None:
        message = "topology pairs needs the link between pairs (for example between_pairs: pcie4)"
        report.add(message, ("cluster", "intra_node", "between_pairs"), ("cluster", "intra_node", "topology"))
    if links is not None and links.in_network_reduction is not None and not links.switched:
        message = (
            f"only an NVSwitch reduces: in_network_reduction needs kind nvlink and topology nvswitch, not {links.kind} "
            f"and {links.topology} (leave it out)"
        )
        report.add(message, *(("cluster", "intra_node", name) for name in ("in_network_reduction", "kind", "topology")))


def _check_model(model: Model, report: Report) -> None:
    if model.num_layers > MAX_LAYERS:
        report.add(f"{model.num_layers} layers (at most {MAX_LAYERS:,})", _model("num_layers"))
    heads, groups = model.num_attention_heads, model.num_key_value_heads
    if heads % groups:
        right = _nearest_divisors(groups, heads)
        message = f"num_key_value_heads {groups} does not divide num_attention_heads {heads} ({right})"
        report.add(message, _model("num_key_value_heads"), _model("num_attention_heads"))
    active, experts = model.num_experts_per_token, model.num_experts
    if active > experts:
        message = f"num_experts_per_token {active} is more than num_experts {experts} (at most that many)"
        report.add(message, _model("num_experts_per_token"), _model("num_experts"))


def _check_tensor(model: Model, split: Parallelism, report: Report) -> None:
    tensor = split.tensor
    for name in ("num_attention_heads", "intermediate_size", "hidden_size"):
        size = getattr(model, name)
        if size % tensor:
            message = f"tensor {tensor} does not divide {name} {size} ({_nearest_divisors(tensor, size)})"
            report.add(message, _parallelism("tensor"), _model(name))
    groups = model.num_key_value_heads
    if groups != model.num_attention_heads and tensor % groups and groups % tensor:
        message = (
            f"of tensor {tensor} and num_key_value_heads {groups} neither divides the other "
            f"({_nearest_divisors(tensor, groups)}, and so would a multiple of {groups})"
        )
        report.add(message, _parallelism("tensor"), _model("num_key_value_heads"))


def _check_layers(model: Model, split: Parallelism, report: Report) -> None:
    layers, chunks = model.num_layers + split.accounted_layers, split.layer_chunks
    if layers % chunks:
        counted = f"num_layers {model.num_layers}"
        if split.accounted_layers:
            counted += f" + {split.accounted_layers} for the embedding and loss"
        message = (
            f"pipeline {split.pipeline} × virtual_pipeline {split.virtual_pipeline} = {chunks} does not divide "
            f"{counted} ({_nearest_divisors(chunks, layers)})"
        )
        switches = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")
        blamed = _above_one_first(split, "pipeline", "virtual_pipeline")
        report.add(message, *blamed, _model("num_layers"), *(_parallelism(name) for name in switches))


def _check_pipeline_schedule(draft: Draft, report: Report) -> None:
    split, training = draft.parallelism, draft.training
    stages, virtual = split.pipeline, split.virtual_pipeline
    interleaved = split.pipeline_schedule == "interleaved"
    if virtual > 1 and not interleaved:
        message = f"virtual_pipeline {virtual} needs pipeline_schedule: interleaved, not {split.pipeline_schedule}"
        report.add(f"{message} (or virtual_pipeline: 1)", _parallelism("virtual_pipeline"), _schedule)
    if interleaved and virtual == 1:
        message = "pipeline_schedule interleaved needs virtual_pipeline above 1 (or pipeline_schedule: 1f1b)"
        report.add(message, _schedule, _parallelism("virtual_pipeline"))
    if interleaved and stages == 1:
        message = "pipeline_schedule interleaved needs pipeline above 1 (or pipeline_schedule: 1f1b)"
        report.add(message, _schedule, _parallelism("pipeline"))
    per_step = split.data * training.micro_batch_size
    micro_batches = training.global_batch_size // per_step
    if interleaved and training.global_batch_size % per_step == 0 and micro_batches % stages:
        message = (
            f"pipeline_schedule interleaved needs micro-batches in multiples of pipeline {stages}, not {micro_batches} "
            f"(for example global_batch_size {per_step * stages * max(1, micro_batches // stages)})"
        )
        others = (_parallelism("pipeline"), _parallelism("data"), _training("micro_batch_size"))
        report.add(message, _schedule, _training("global_batch_size"), *others)
    for name in ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"):
        if getattr(split, name) and stages == 1:
            message = f"{name} needs pipeline above 1, or there is nothing to split (leave it out)"
            report.add(message, _parallelism(name), _parallelism("pipeline"))


def _check_batch(draft: Draft, report: Report) -> None:
    training, data = draft.training, draft.parallelism.data
    per_step = data * training.micro_batch_size
    if training.global_batch_size % per_step:
        message = (
            f"global_batch_size {training.global_batch_size} is not a multiple of data {data} × micro_batch_size "
            f"{training.micro_batch_size} = {per_step} ({_nearest_multiples(per_step, training.global_batch_size)})"
        )
        others = (_training("micro_batch_size"), _parallelism("data"))
        report.add(message, _training("global_batch_size"), *others)


def _check_sequence(draft: Draft, report: Report) -> None:
    split, length = draft.parallelism, draft.training.sequence_length
    where = _training("sequence_length")
    if split.sequence and length % (split.tensor * split.context):
        step = split.tensor * split.context
        message = (
            f"sequence_length {length} is not a multiple of tensor {split.tensor} × context {split.context} = {step}, "
            f"as sequence parallelism needs ({_nearest_multiples(step, length)})"
        )
        report.add(message, where, *(_parallelism(name) for name in ("sequence", "tensor", "context")))
    if split.context > 1 and length % (2 * split.context):
        message = (
            f"sequence_length {length} is not a multiple of 2 × context {split.context}, as balanced causal "
            f"attention needs ({_nearest_multiples(2 * split.context, length)})"
        )
        report.add(message, where, _parallelism("context"))


def _check_experts(model: Model, split: Parallelism, report: Report) -> None:
    expert, where = split.expert, _parallelism("expert")
    if expert == 1:
        return
    if model.num_experts == 1:
        report.add(f"expert {expert}: {model.title} has no experts (write 1)", where, _model("num_experts"))
        return
    if model.num_experts % expert:
        right = _nearest_divisors(expert, model.num_experts)
        report.add(
            f"expert {expert} does not divide num_experts {model.num_experts} ({right})", where, _model("num_experts")
        )
    if split.data % expert:
        right = _nearest_divisors(expert, split.data)
        report.add(f"expert {expert} does not divide data {split.data} ({right})", where, _parallelism("data"))


def _check_positions(model: Model, training: Training, report: Report) -> None:
    longest = model.max_position_embeddings
    if model.position_embedding == "learned" and training.sequence_length > longest:
        message = (
            f"sequence_length {training.sequence_length} is longer than the {longest} positions {model.title} learned "
            f"(at most {longest}, or set model.max_position_embeddings)"
        )
        report.add(message, _training("sequence_length"), _model("max_position_embeddings"))


def _parallelism(name: str) -> Path:
    return ("parallelism", name)


def _training(name: str) -> Path:
    return ("training", name)


def _model(name: str) -> Path:
    return ("model", name)


_schedule = _parallelism("pipeline_schedule")


def _above_one_first(split: Parallelism, *names: str) -> list[Path]:
    """The paths of these fields, those above one first: they are what can be wrong."""
    return [_parallelism(name) for name in sorted(names, key=lambda name: getattr(split, name) == 1)]


def _nearest_divisors(wrong: int, total: int) -> str:
    """The divisors of `total` on either side of a number that is none."""
    divisors = {part for low in range(1, math.isqrt(total) + 1) if total % low == 0 for part in (low, total // low)}
    below = max(part for part in divisors if part < wrong) if wrong > 1 else 1
    above = min((part for part in divisors if part > wrong), default=None)
    return f"{below} or {above} would" if above is not None else f"{below} would"


def _nearest_multiples(step: int, wrong: int) -> str:
    """The multiples of `step` on either side of a number that is none."""
    below = wrong // step * step
    return f"{below} or {below + step} would be" if below else f"{step} would be"
