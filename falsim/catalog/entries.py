"""The types of catalogue entries: what falsim must know of a GPU, a link, a node and a model.

Everything is SI: bytes, seconds, bytes/s, FLOP/s, watts; a field that is a quantity stands in DIMENSIONS, and
the data files write it with its unit ("3350 GB/s"). Each entry names the sources of its numbers in `sources`:
`sources["*"]` covers every number that has no key of its own there; the text `assumed` (with a reason behind it) marks
a number nobody published.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from falsim.units import Dimension

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]
ACTIVATION_BYTES: dict[Precision, float] = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 2.0}
"""Bytes of one activation: fp8 training keeps activations in bf16 between its fp8 products."""

Topology = Literal["nvswitch", "mesh", "pairs", "shared_root", "two_sockets", "shared_memory"]
"""How GPUs of a node reach each other.

nvswitch: every GPU reaches every other at its link's full rate. mesh: a GPU's links are split over its peers, so n
of the node's N GPUs use (n - 1) / (N - 1) of them. pairs: bridged two by two, PCIe between pairs. shared_root: all
behind one PCIe root or switch. two_sockets: half behind each of two roots. shared_memory: processes of one CPU.
"""

DIMENSIONS: dict[str, Dimension] = {
    "peak_flops": "flops",
    "memory": "bytes",
    "memory_bandwidth": "bandwidth",
    "kernel_launch": "time",
    "host_launch": "time",
    "thermal_design_power": "power",
    "bandwidth": "bandwidth",
    "latency": "time",
}
"""The fields that are quantities, whatever the kind of entry: the data files write them with a unit."""


class Entry(BaseModel):
    """Fields every catalogue entry has."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(description="canonical key of the entry, e.g. h100-sxm")
    title: str = Field(description="the name people print, e.g. NVIDIA H100 SXM 80 GB")
    aliases: tuple[str, ...] = ()
    sources: dict[str, str] = Field(description="where each number comes from; '*' for all not named")


class Gpu(Entry):
    """One accelerator as the software sees it (an MI250X is two of these)."""

    vendor: Literal["nvidia", "amd", "cpu"]
    peak_flops: dict[Precision, PositiveFloat] = Field(
        description="dense matrix FLOP/s with fp32 accumulation (fp32: without tensor cores); absent is not supported"
    )
    matmul_efficiency: float = Field(
        gt=0, le=1, description="best measured large bf16 (else fp16) matmul / peak_flops, at most 1"
    )
    memory: PositiveFloat = Field(description="bytes of device memory")
    memory_bandwidth: PositiveFloat = Field(description="bytes/s of device memory")
    memory_efficiency: float = Field(gt=0, le=1, description="streaming kernels' bytes/s / memory_bandwidth")
    sm_count: PositiveInt = Field(description="streaming multiprocessors (compute units on AMD)")
    compute_capability: str | None = Field(None, description="e.g. sm_90, gfx942; none for a CPU")
    pcie_peer_to_peer: bool = Field(description="whether the stock driver lets GPUs read each other over PCIe")
    kernel_launch: float = Field(ge=0, description="seconds a kernel costs on the device beyond its work")
    host_launch: float = Field(ge=0, description="seconds of host time to issue one kernel from an eager framework")
    same_chip_as: str | None = Field(None, description="GPU whose kernel measurements stand for this one too")
    thermal_design_power: PositiveFloat | None = Field(None, description="watts")
    price_per_hour: PositiveFloat | None = Field(None, description="US dollars an hour")


class Link(Entry):
    """One link of one GPU (or NIC), per direction."""

    kind: Literal["nvlink", "infinity_fabric", "pcie", "network", "memory"]
    bandwidth: PositiveFloat = Field(description="bytes/s per direction: datasheet")
    efficiency: float = Field(gt=0, le=1, description="bus bandwidth of large ring collectives / bandwidth")
    latency: float | None = Field(
        None,
        ge=0,
        description="seconds of one step, instead of the collective library's own; none: unknown, use those",
    )
    in_network_reduction: float | None = Field(
        None, gt=0, description="bus bandwidth of switch-reduced all-reduce (NVLS, SHARP) / bandwidth; may exceed 1"
    )
    nics: Literal["per_gpu", "per_node"] | None = Field(None, description="network links: who has one NIC of this kind")


class Node(Entry):
    """How the GPUs of one node are joined: a preset for `cluster.intra_node`."""

    topology: Topology
    link: str = Field(description="catalogue name of the link each GPU has")
    between_pairs: str | None = Field(None, description="topology pairs: the link between bridged pairs")
    concurrent_flows: PositiveFloat | None = Field(
        None,
        description="how many full-rate flows one PCIe root carries at once with peer-to-peer: a ring over the n GPUs "
        "of a root runs at bandwidth * efficiency * min(1, concurrent_flows / n); with bridged pairs n counts pairs",
    )
    concurrent_flows_host: PositiveFloat | None = Field(
        None, description="the same when every transfer is staged through host memory (no peer-to-peer)"
    )
    cross_socket_flows: PositiveFloat | None = Field(
        None,
        description="two sockets: full-rate flows the socket interconnect carries each way; a ring over both sends one",
    )


class Model(Entry):
    """The shape of a decoder-only transformer."""

    num_layers: PositiveInt
    hidden_size: PositiveInt
    num_attention_heads: PositiveInt
    num_key_value_heads: PositiveInt
    head_dim: PositiveInt
    intermediate_size: PositiveInt
    vocab_size: PositiveInt
    max_position_embeddings: PositiveInt
    mlp: Literal["gelu", "relu", "swiglu", "geglu"] = "gelu"
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    position_embedding: Literal["learned", "rope", "alibi", "none"] = "learned"
    extra_position_rows: int = Field(0, ge=0, description="OPT keeps two rows more than positions")
    tie_word_embeddings: bool = True
    attention_bias: bool = Field(True, description="bias of the query, key and value projections")
    attention_output_bias: bool = True
    mlp_bias: bool = True
    lm_head_bias: bool = False
    embedding_norm: bool = Field(False, description="BLOOM normalises the word embeddings")
    norms_per_block: Literal[1, 2] = Field(2, description="of the family's own block; a parallel block may have one")
    native_block: Literal["serial", "parallel"] = "serial"
    num_experts: PositiveInt = 1
    num_experts_per_token: PositiveInt = 1

    @property
    def gated(self) -> bool:
        """Whether the MLP multiplies by a gate: three matrices instead of two."""
        return self.mlp in ("swiglu", "geglu")
