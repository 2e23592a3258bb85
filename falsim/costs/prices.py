"""The price of one op: seconds on its stream and seconds of the host that issues it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from falsim.catalog.calibration import Calibration, calibration, shipped_for
from falsim.catalog.entries import ACTIVATION_BYTES, Precision
from falsim.costs.device import (
    Device,
    attention_seconds,
    elementwise_seconds,
    gemm_seconds,
    gemm_traffic,
    kernels,
)
from falsim.costs.network import Network
from falsim.costs.topology import network_of
from falsim.dataflow import Attention, Collective, Elementwise, Gemm, Group, Number, Transfer, Work
from falsim.scenario import Scenario


@dataclass(frozen=True)
class Prices:
    """Prices every op of a step on one device and its network."""

    device: Device
    network: Network
    constants: Calibration
    free_tensor_collectives: bool = False
    """For the no-synchronisation bound."""

    def seconds(self, work: Work | None) -> Number:
        """Seconds of one op on its stream; zero for a graph's inputs."""
        match work:
            case None:
                return 0.0
            case Gemm():
                return gemm_seconds(work, self.device, self.constants)
            case Attention():
                return attention_seconds(work, self.device, self.constants)
            case Elementwise():
                return elementwise_seconds(work, self.device)
            case Collective():
                return 0.0 if self._is_free(work) else self.network.collective_seconds(work)
            case Transfer():
                return self.network.transfer_seconds(work)

    def demand(self, work: Work | None) -> tuple[Number, Number]:
        """Seconds of tensor cores and of memory that a kernel needs at full rate, for sharing between kernels."""
        match work:
            case Gemm():
                return work.flops / (self.device.peak * self.device.matmul_efficiency), gemm_traffic(work, self.device)
            case Attention():
                return attention_seconds(work, self.device, self.constants) - self.device.kernel_launch, 0.0
            case Elementwise():
                return 0.0, work.bytes / self.device.memory_bandwidth
            case _:
                return 0.0, 0.0

    def host_seconds(self, work: Work | None) -> Number:
        """Seconds the host needs to issue one op."""
        match work:
            case None:
                return 0.0
            case Collective():
                return 0.0 if self._is_free(work) else self.device.host_launch
            case Transfer():
                return self.device.host_launch
            case _:
                return kernels(work) * self.device.host_launch

    def _is_free(self, work: Collective) -> bool:
        return self.free_tensor_collectives and work.group is Group.TENSOR

    def without_tensor_collectives(self) -> Prices:
        """The same prices with every tensor-parallel collective free."""
        return replace(self, free_tensor_collectives=True)


def calibration_of(scenario: Scenario) -> Calibration:
    """The calibration a scenario names, else the one shipped for its GPU, else that of datasheets."""
    return calibration(scenario.calibration or shipped_for(scenario.cluster.gpu))


def prices_of(
    scenario: Scenario,
    factors: Mapping[str, Number] = MappingProxyType({}),
    constants: Calibration | None = None,
) -> Prices:
    """Prices for a scenario from its calibration, or from the one given.

    `factors` multiply constants, by the names of `Calibration.spreads`; with arrays of members as factors every price
    is an array of members.
    """
    constants = calibration_of(scenario) if constants is None else constants
    gpu, training = scenario.cluster.gpu, scenario.training
    kept: Precision = "bf16" if training.precision == "fp8" else training.precision
    matmul = constants.value("matmul_efficiency", gpu.matmul_efficiency)
    streaming = constants.value("memory_efficiency", gpu.memory_efficiency) * factors.get("memory", 1.0)
    flash = constants.flash_efficiency.get(gpu.compute_capability or "", constants.flash_efficiency_other)
    device = Device(
        peak=gpu.peak_flops[training.precision] * factors.get("compute", 1.0),
        attention_peak=gpu.peak_flops[kept] * factors.get("compute", 1.0),
        matmul_efficiency=np.minimum(1.0, matmul * factors.get("gemm", 1.0)),
        memory_bandwidth=gpu.memory_bandwidth * np.minimum(1.0, streaming * factors.get("compute", 1.0)),
        sm_count=float(gpu.sm_count),
        kernel_launch=constants.value("kernel_launch", gpu.kernel_launch) * factors.get("launch", 1.0),
        host_launch=gpu.host_launch * factors.get("host", 1.0),
        flash_efficiency=np.minimum(1.0, flash * factors.get("flash", 1.0)),
        element_bytes=ACTIVATION_BYTES[training.precision],
    )
    return Prices(device, network_of(scenario, constants, factors), constants)
