"""What a scenario file may say: names of presets, fields on top of them, quantities with units, most things left out.

`falsim.scenario.presets` turns it into the resolved `falsim.scenario.schema`. These classes are also the source of
the JSON Schema that editors complete from.
"""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from falsim.catalog.calibration import calibration_names
from falsim.catalog.entries import Precision, Topology
from falsim.scenario.fields import (
    Bandwidth,
    Count,
    Duration,
    Flows,
    Fraction,
    Latency,
    Memory,
    Power,
    Price,
    Rate,
    Speed,
    Switch,
    SwitchFactor,
    Text,
    Whole,
    choice,
    wrong,
)
from falsim.scenario.schema import (
    ARCHITECTURES,
    COMPARED,
    Architecture,
    Implementation,
    LinkKind,
    ParallelismFields,
    Section,
    Training,
    Workload,
)
from falsim.scenario.wording import shown, suggestion

Vendor = Literal["nvidia", "amd", "cpu"]
Mlp = Literal["gelu", "relu", "swiglu", "geglu"]
Norm = Literal["layernorm", "rmsnorm"]
PositionEmbedding = Literal["learned", "rope", "alibi", "none"]
Block = Literal["serial", "parallel"]
NormsPerBlock = Literal[1, 2]


def _optional(description: str) -> Any:
    """A field that may be left out; what that means is in the description or in the preset."""
    return Field(default=None, description=description)


class Preset(Section):
    """A section that may also be written as one name: the preset whose fields it takes."""

    preset: Text | None = _optional("name of the catalogue entry whose fields these override")

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, data: Any) -> Any:
        return {"preset": data} if isinstance(data, str) else data


class ModelFields(Preset):
    """A model: a preset or a Hugging Face config.json with fields on top, or all the fields inline."""

    from_config: Text | None = _optional("path of a Hugging Face config.json, relative to this file")
    title: Text | None = _optional("the name to print")
    num_layers: Count | None = _optional("transformer blocks")
    hidden_size: Count | None = _optional("width of the residual stream")
    num_attention_heads: Count | None = _optional("query heads")
    num_key_value_heads: Count | None = _optional("default: num_attention_heads")
    head_dim: Count | None = _optional("default: hidden_size / num_attention_heads")
    intermediate_size: Count | None = _optional("inner width of the MLP; default: 4 × hidden_size")
    vocab_size: Count | None = _optional("default: 50257, GPT-2's")
    max_position_embeddings: Count | None = _optional("default: training.sequence_length")
    mlp: Annotated[Mlp, choice(Mlp)] | None = _optional("default: gelu")
    norm: Annotated[Norm, choice(Norm)] | None = _optional("default: layernorm")
    position_embedding: Annotated[PositionEmbedding, choice(PositionEmbedding)] | None = _optional("default: learned")
    extra_position_rows: Whole | None = _optional("rows of the position table beyond the positions")
    tie_word_embeddings: Switch | None = _optional("default: true")
    attention_bias: Switch | None = _optional("default: true")
    attention_output_bias: Switch | None = _optional("default: true")
    mlp_bias: Switch | None = _optional("default: true")
    lm_head_bias: Switch | None = _optional("default: false")
    embedding_norm: Switch | None = _optional("default: false")
    norms_per_block: Annotated[NormsPerBlock, choice(NormsPerBlock)] | None = _optional(
        "norms in the family's own block; default: 2"
    )
    native_block: Annotated[Block, choice(Block)] | None = _optional("the family's own block; default: serial")
    num_experts: Count | None = _optional("default: 1")
    num_experts_per_token: Count | None = _optional("default: 1")


class GpuFields(Preset):
    """A GPU: a preset with fields on top, or all the fields."""

    title: Text | None = _optional("the name to print")
    vendor: Annotated[Vendor, choice(Vendor)] | None = None
    peak_flops: dict[Annotated[Precision, choice(Precision)], Speed] | None = _optional(
        "by precision, of dense matrices"
    )
    matmul_efficiency: Fraction | None = _optional("best large matmul / peak_flops")
    memory: Memory | None = _optional("device memory")
    memory_bandwidth: Bandwidth | None = _optional("of device memory")
    memory_efficiency: Fraction | None = _optional("streaming kernels' bandwidth / memory_bandwidth")
    sm_count: Count | None = _optional("streaming multiprocessors or compute units")
    compute_capability: Text | None = _optional("e.g. sm_90, gfx942")
    pcie_peer_to_peer: Switch | None = _optional("whether the driver lets GPUs read each other over PCIe")
    kernel_launch: Latency | None = _optional("time a kernel costs on the device beyond its work")
    host_launch: Latency | None = _optional("host time to issue one kernel")
    thermal_design_power: Power | None = None
    price_per_hour: Price | None = _optional("US dollars an hour")


class LinkFields(Preset):
    """The link between bridged pairs of GPUs: a preset with fields on top, or all the fields."""

    kind: Annotated[LinkKind, choice(LinkKind)] | None = None
    bandwidth: Bandwidth | None = _optional("per direction")
    latency: Latency | None = _optional("time of one step of a collective, instead of the library's own")
    efficiency: Fraction | None = _optional("bus bandwidth of large ring collectives / bandwidth")


class IntraNodeFields(LinkFields):
    """How the GPUs of one node are joined: a node or link preset with fields on top, or all the fields."""

    topology: Annotated[Topology, choice(Topology)] | None = None
    in_network_reduction: SwitchFactor | None = _optional(
        "bus bandwidth of switch-reduced all-reduce / bandwidth; NVSwitch only"
    )
    concurrent_flows: Flows | None = _optional("full-rate flows a PCIe root carries, peer to peer")
    concurrent_flows_host: Flows | None = _optional("the same, staged through host memory")
    cross_socket_flows: Flows | None = _optional("full-rate flows between two sockets, each way")
    between_pairs: LinkFields | None = _optional("topology pairs: the link between bridged pairs")


class InterNodeFields(LinkFields):
    """How nodes are joined: a link preset with fields on top, or all the fields; bandwidth is one NIC's."""

    nics_per_node: Count | None = _optional("default: one per GPU or per node, as the preset says")


class ClusterFields(Section):
    """The GPUs and what joins them."""

    gpu: GpuFields
    gpus_per_node: Count = Field(default=1, description="GPUs in one node")
    nodes: Count = Field(default=1, description="nodes in the cluster")
    intra_node: IntraNodeFields | None = _optional("links inside a node; needed with several GPUs in one")
    inter_node: InterNodeFields | None = _optional("links between nodes; needed with several nodes")


class MeasuredFields(Section):
    """A published or own measurement to show beside the prediction; at least one value, and where it is from."""

    architecture: Architecture = Field(default="gpt", description="which one was measured")
    step_time: Duration | None = _optional("time of one optimizer step")
    tokens_per_s_per_gpu: Rate | None = None
    mfu: Fraction | None = _optional("model FLOP/s utilisation as a fraction")
    source: Text = Field(description="where the value comes from")


def _at_least_one(value: Any) -> Any:
    """One name is a list of one; a list of none leaves nothing to price."""
    if value == []:
        raise wrong(f"names no architecture (choose from {', '.join(ARCHITECTURES)})")
    return [value] if isinstance(value, str) else value


def _each_once(names: tuple[Architecture, ...]) -> tuple[Architecture, ...]:
    repeated = [name for position, name in enumerate(names) if name in names[:position]]
    if repeated:
        raise wrong(f"{repeated[0]!r} stands more than once (name it once)")
    return names


Architectures: TypeAlias = Annotated[
    tuple[Architecture, ...],
    BeforeValidator(_at_least_one),
    AfterValidator(_each_once),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": list(ARCHITECTURES)},
                {"type": "array", "items": {"enum": list(ARCHITECTURES)}, "minItems": 1, "uniqueItems": True},
            ]
        }
    ),
]


def _shipped(name: str) -> str:
    """The name of a shipped calibration; `none` stands for datasheets alone."""
    known = ("none", *calibration_names())
    if name not in known:
        raise wrong(f"{shown(name)} is not one of {', '.join(known)}{suggestion(name, known)}")
    return name


Calibration: TypeAlias = Annotated[Text, AfterValidator(_shipped)]


class ScenarioFile(Section):
    """A scenario: which architectures to price, for which model, on which cluster, trained how."""

    name: Text | None = _optional("what to call it; default: the file's name")
    description: Text | None = _optional("what the scenario shows")
    workload: Annotated[Workload, choice(Workload)] = Field(default="training", description="only training for now")
    model: ModelFields
    architectures: Architectures = Field(default=COMPARED, description="block architectures to compare")
    cluster: ClusterFields
    parallelism: ParallelismFields = ParallelismFields()
    training: Training
    implementation: Implementation = Implementation()
    calibration: Calibration | None = _optional("name of a shipped calibration; none: datasheets alone")
    measured: MeasuredFields | None = None
