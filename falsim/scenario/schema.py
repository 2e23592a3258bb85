"""A scenario, resolved: presets replaced by their numbers, defaults filled in, everything in SI units.

Attribute names are the paths of the YAML file (`scenario.parallelism.tensor`). What a file may say is described in
`falsim.scenario.written`; the groups of plain fields stand here because both share them.
"""

from importlib.resources import files
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from falsim.catalog.entries import Gpu, Model, Precision, Topology
from falsim.scenario.fields import Count, Switch, ZeroStage, choice, one_of

COMPARED = ("gpt", "fal", "fal_plus", "parallel", "ladder", "no_sync")
"""The architectures a scenario compares when it names none."""


def _architectures() -> tuple[str, ...]:
    """Names of the files in falsim/architectures that write an architecture; none is imported."""
    folder = files("falsim") / "architectures"
    stems = {entry.name.removesuffix(".py") for entry in folder.iterdir() if entry.name.endswith(".py")}
    written = {stem for stem in stems if stem != "base" and not stem.startswith("_")}
    return (*COMPARED, *sorted(written.difference(COMPARED)))


ARCHITECTURES = _architectures()
"""The architectures a scenario may ask for."""
Architecture = Annotated[str, one_of(ARCHITECTURES), WithJsonSchema({"enum": list(ARCHITECTURES)})]

Workload = Literal["training"]
LinkKind = Literal["nvlink", "infinity_fabric", "pcie", "network", "memory"]
PipelineSchedule = Literal["1f1b", "gpipe", "interleaved"]
Attention = Literal["flash", "unfused"]
Recompute = Literal["none", "selective", "full"]
Optimizer = Literal["adamw", "sgd"]
ReduceDtype = Literal["fp32", "bf16", "fp16"]
FirstBlock = Literal["gpt", "fal"]
Overlap = Literal["none", "wgrad", "async_tp"]


class Section(BaseModel):
    """A group of fields of a scenario: immutable, and every key must be known."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ParallelismFields(Section):
    """How the work is split over GPUs, as a file says it: `data` may be left out."""

    tensor: Count = Field(default=1, description="tensor-parallel GPUs: each holds a slice of every matrix")
    sequence: Switch = Field(default=False, description="sequence parallelism in the tensor-parallel group")
    context: Count = Field(default=1, description="context-parallel GPUs: each holds a slice of the sequence")
    pipeline: Count = Field(default=1, description="pipeline stages: each holds a slice of the layers")
    pipeline_schedule: Annotated[PipelineSchedule, choice(PipelineSchedule)] = Field(
        default="1f1b", description="order of the micro-batches; interleaved needs virtual_pipeline > 1"
    )
    virtual_pipeline: Count = Field(default=1, description="chunks of layers per stage of the interleaved schedule")
    data: Count | None = Field(default=None, description="data-parallel replicas; left out: whatever uses all GPUs")
    expert: Count = Field(default=1, description="expert-parallel GPUs, taken out of the data-parallel ones")
    zero: ZeroStage = Field(
        default=0, description="ZeRO stage: shard nothing, optimizer state, gradients too, parameters too (FSDP)"
    )
    account_for_embedding_in_pipeline_split: Switch = Field(
        default=False, description="the embedding counts as one layer when layers are dealt to stages (Megatron-LM)"
    )
    account_for_loss_in_pipeline_split: Switch = Field(
        default=False, description="the loss counts as one layer when layers are dealt to stages (Megatron-LM)"
    )


class Parallelism(ParallelismFields):
    """How the work is split over GPUs: tensor × context × pipeline × data = all GPUs."""

    data: Count = Field(default=1, description="data-parallel replicas")

    @property
    def layer_chunks(self) -> int:
        """Into how many equal chunks the pipeline cuts the layers: stages × virtual stages."""
        return self.pipeline * self.virtual_pipeline

    @property
    def accounted_layers(self) -> int:
        """Layers that the embedding and the loss count for when layers are dealt to stages."""
        return self.account_for_embedding_in_pipeline_split + self.account_for_loss_in_pipeline_split


class Training(Section):
    """What one training step processes, and in which numbers."""

    sequence_length: Count = Field(description="tokens per sequence")
    micro_batch_size: Count = Field(default=1, description="sequences per micro-batch of one replica")
    global_batch_size: Count = Field(description="sequences per optimizer step, over all replicas")
    precision: Annotated[Precision, choice(Precision)] = Field(default="bf16", description="numbers the matmuls run in")
    attention: Annotated[Attention, choice(Attention)] = Field(default="flash", description="attention kernel")
    recompute: Annotated[Recompute, choice(Recompute)] = Field(
        default="none", description="activations computed again in backward: none, attention's (selective), all (full)"
    )
    optimizer: Annotated[Optimizer, choice(Optimizer)] = Field(default="adamw", description="its state takes memory")
    gradient_reduce_dtype: Annotated[ReduceDtype, choice(ReduceDtype)] = Field(
        default="fp32", description="numbers in which gradients are reduced over replicas"
    )
    overlap_gradient_reduce: Switch = Field(default=True, description="reduce gradients while backward still runs")


class Implementation(Section):
    """Switches of how an architecture is implemented."""

    merge_partial_gradients: Switch | None = Field(
        default=None,
        description="add partial gradients, then reduce once; left out: the architecture's own default",
    )
    first_block: Annotated[FirstBlock, choice(FirstBlock)] = Field(default="gpt", description="FAL's first block")
    overlap: Annotated[Overlap, choice(Overlap)] = Field(
        default="wgrad",
        description="what hides backward's tensor-parallel collectives: none, weight gradients, matmul chunks",
    )
    concurrent_attention_mlp: Switch = Field(
        default=False, description="run attention and MLP at the same time where the architecture allows it"
    )
    recompute_early_stop: Switch = Field(default=False, description="stop recomputing at the last activation needed")


class Measured(Section):
    """A published or own measurement, shown beside the prediction; times in seconds, mfu as a fraction."""

    architecture: str
    step_time: float | None
    tokens_per_s_per_gpu: float | None
    mfu: float | None
    source: str


class PairLink(Section):
    """The link between bridged pairs of GPUs, per direction: bytes/s, seconds."""

    preset: str | None
    kind: LinkKind
    bandwidth: float
    latency: float | None
    efficiency: float


class IntraNode(Section):
    """How the GPUs of one node are joined: its topology and the link each GPU has (bytes/s per direction, seconds).

    The flow fields are those of `falsim.catalog.entries.Node`.
    """

    preset: str | None
    topology: Topology
    kind: LinkKind
    bandwidth: float
    latency: float | None
    efficiency: float
    in_network_reduction: float | None
    concurrent_flows: float | None
    concurrent_flows_host: float | None
    cross_socket_flows: float | None
    between_pairs: PairLink | None

    @property
    def switched(self) -> bool:
        """Whether the GPUs share an NVSwitch, which alone can reduce on the way (NVLS)."""
        return self.kind == "nvlink" and self.topology == "nvswitch"


class InterNode(Section):
    """How nodes are joined: `bandwidth` is that of one NIC per direction in bytes/s, `latency` in seconds."""

    preset: str | None
    kind: LinkKind
    bandwidth: float
    latency: float | None
    efficiency: float
    nics_per_node: int


class Cluster(Section):
    """The GPUs and what joins them."""

    gpu: Gpu
    gpus_per_node: int
    nodes: int
    intra_node: IntraNode
    inter_node: InterNode | None


class Scenario(Section):
    """Everything a prediction depends on; made by `falsim.scenario.load_scenario`."""

    name: str
    description: str | None
    workload: Workload
    model: Model
    architectures: tuple[str, ...]
    cluster: Cluster
    parallelism: Parallelism
    training: Training
    implementation: Implementation
    calibration: str | None
    measured: Measured | None
    notes: tuple[str, ...]

    @property
    def world_size(self) -> int:
        """GPUs in the cluster."""
        return self.cluster.gpus_per_node * self.cluster.nodes

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches one replica runs per optimizer step."""
        return self.training.global_batch_size // (self.parallelism.data * self.training.micro_batch_size)

    @property
    def tokens_per_step(self) -> int:
        """Tokens all replicas process per optimizer step."""
        return self.training.global_batch_size * self.training.sequence_length
