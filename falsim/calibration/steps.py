"""Whole training steps: a row of `training_steps.csv` as a scenario, and what of it was measured."""

from __future__ import annotations

from dataclasses import dataclass

from falsim.calibration.cells import Cells, Unpredictable
from falsim.calibration.choice import calibration_for
from falsim.calibration.clusters import cluster_of, gpu_of
from falsim.calibration.configurations import Shape, Split, padded, scenario_of
from falsim.calibration.defaults import Convention, family, reading_of, set_of
from falsim.calibration.tables import Kind, Row
from falsim.scenario import Scenario

COLUMNS: dict[str, Kind] = {
    **dict.fromkeys(("id", "gpu", "model_name", "mlp_type", "zero_fsdp", "recompute", "precision"), "text"),
    **dict.fromkeys(("attention_impl", "metric", "notes"), "text"),
    **dict.fromkeys(("n_gpus", "layers", "hidden", "heads", "kv_heads", "ffn_hidden", "vocab", "seq_len"), "count"),
    **dict.fromkeys(("global_batch_seqs", "micro_batch_seqs", "tp", "pp", "pp_interleave", "dp", "cp"), "count"),
    "sp": "switch",
    "value": "number",
}
REQUIRED = ("id", "gpu", "n_gpus", "metric", "value")
METRICS = ("iteration_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "layer_fwd_s", "layer_bwd_s")
LAYER_METRICS = ("layer_fwd_s", "layer_bwd_s")


@dataclass(frozen=True)
class Case:
    """One measurement and the scenario that predicts it."""

    id: str
    name: str
    """The set."""
    scenario: Scenario
    architecture: str
    metric: str
    measured: float
    flops: Convention
    taken: tuple[str, ...]


@dataclass(frozen=True)
class Skipped:
    """One measurement that cannot be predicted, and why."""

    id: str
    name: str
    reason: str


def case_of(row: Row, calibration: str | None = None) -> Case | Skipped:
    """The scenario of a row, or why there is none; `calibration` None chooses by set and GPU."""
    name = set_of(row)
    try:
        return _case(row, name, calibration)
    except Unpredictable as reason:
        return Skipped(row.text("id"), name, str(reason))


def _case(row: Row, name: str, calibration: str | None) -> Case:
    reading = reading_of(name, row)
    cells = Cells(row, reading)
    metric, value = row.text("metric"), row.number("value")
    assert value is not None
    if metric not in METRICS:
        raise Unpredictable(f"metric {metric!r} is not predicted")
    gpu = gpu_of(row.text("gpu"))
    split = _split(cells)
    sequence = cells.count("seq_len")
    shape = _shape(cells, split, sequence)
    precision = str(cells.word("precision", "precision"))
    micro_batch, global_batch, split = _batch(cells, split)
    split = _interleaved(cells, split, shape.layers, global_batch // max(1, micro_batch * split.data))
    training = {
        **reading.training,
        "sequence_length": sequence,
        "micro_batch_size": micro_batch,
        "global_batch_size": global_batch,
        "precision": precision,
        "attention": cells.word("attention_impl", "attention"),
        "recompute": cells.word("recompute", "recompute"),
        "optimizer": "adamw",
    }
    gpus = row.count("n_gpus")
    assert gpus is not None
    scenario = scenario_of(
        name=row.text("id"),
        shape=shape,
        split=split,
        cluster=cluster_of(gpu.name, gpus, reading.wiring, fp4="fp4" in row.text("precision").lower()),
        training=training,
        implementation={"merge_partial_gradients": None, **reading.implementation},
        calibration=calibration_for(name, gpu, calibration),
    )
    return Case(
        id=row.text("id"),
        name=name,
        scenario=scenario,
        architecture=reading.architecture,
        metric=metric,
        measured=value,
        flops=reading.flops,
        taken=tuple(cells.taken),
    )


def _shape(cells: Cells, split: Split, sequence: int) -> Shape:
    mlp = str(cells.value("mlp_type"))
    hidden, heads = cells.count("hidden"), cells.count("heads")
    usual = family(mlp)
    if not usual:
        raise Unpredictable(f"an MLP of kind {mlp!r} is not in the model")
    multiple = cells.reading.vocab_multiple
    return Shape(
        layers=cells.count("layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=cells.count("kv_heads", heads),
        ffn_hidden=cells.count("ffn_hidden", None if mlp in ("swiglu", "geglu") else 4 * hidden),
        mlp=mlp,
        vocab=padded(cells.count("vocab"), multiple * split.tensor if multiple > 1 else 1),
        positions=sequence,
        extra=tuple({**usual, **cells.reading.model}.items()),
    )


def _split(cells: Cells) -> Split:
    """The degrees; replicas that are not given are those that use all GPUs."""
    tensor, context, pipeline = cells.count("tp"), cells.count("cp"), cells.count("pp")
    gpus = cells.count("n_gpus")
    without = tensor * context * pipeline
    if gpus % without:
        raise Unpredictable("the degrees do not multiply to the number of GPUs")
    return Split(
        tensor=tensor,
        sequence=bool(cells.value("sp")) and tensor > 1,
        context=context,
        pipeline=pipeline,
        virtual=1,
        data=cells.count("dp", gpus // without),
        zero=int(cells.word("zero_fsdp", "zero")),
    )


def _batch(cells: Cells, split: Split) -> tuple[int, int, Split]:
    """Sequences of a micro-batch and of a step, and the split.

    A step that is not given is one micro-batch for each replica, or what the set takes for a replica. Where replicas
    are not given either and would be more than the sequences of a step, the rest of the GPUs hold context.
    """
    micro_batch = cells.count("micro_batch_seqs")
    replica = cells.reading.take.get("sequences_per_replica")
    each = int(replica) if isinstance(replica, int) else micro_batch
    global_batch = cells.count("global_batch_seqs", each * split.data)
    if cells.row.count("dp") is None and split.data > global_batch and split.data % global_batch == 0:
        context = split.context * split.data // global_batch
        split = Split(split.tensor, split.sequence, context, split.pipeline, 1, global_batch, split.zero)
        cells.take("cp", split.context)
    return micro_batch, global_batch, split


def _interleaved(cells: Cells, split: Split, layers: int, micro_batches: int) -> Split:
    """The split with its chunks; chunks that were only taken give way where they do not fit."""
    chunks = cells.count("pp_interleave")
    if split.pipeline == 1:
        chunks = 1
    stages = chunks * split.pipeline
    fits = micro_batches % split.pipeline == 0 and any((layers + extra) % stages == 0 for extra in (0, 1, 2))
    if chunks > 1 and not fits and cells.row.count("pp_interleave") is None:
        chunks = 1
        cells.take("pp_interleave", 1)
    return Split(split.tensor, split.sequence, split.context, split.pipeline, chunks, split.data, split.zero)
