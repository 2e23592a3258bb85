"""Members of a calibration: how they are drawn, and what intervals over them must do."""

from __future__ import annotations

import numpy as np
import pytest

from falsim.costs.ensemble import draw
from falsim.costs.prices import calibration_of, prices_of
from falsim.engines.schedule import run_step
from falsim.program import Program
from falsim.scenario import Scenario, load_scenario
from falsim.simulate import simulate

SCENARIO = """
model: gpt2-1.5b
cluster: {gpu: h100-sxm, gpus_per_node: 4, intra_node: nvlink4-nvswitch}
architectures: [gpt, fal, parallel, no_sync]
parallelism: {tensor: 4}
training: {sequence_length: 1024, micro_batch_size: 4, global_batch_size: 8}
"""


def scenario(*overrides: str) -> Scenario:
    return load_scenario(SCENARIO, overrides)


def test_factors_have_the_spread_asked_for_and_lean_on_no_other() -> None:
    spreads = {"gemm": 0.1, "host": 0.5, "bandwidth_pcie": 0.3}
    logs = np.log(np.array(list(draw(spreads).values())))
    assert logs.mean(axis=1) == pytest.approx(0.0, abs=1e-12)
    assert logs.std(axis=1) == pytest.approx(list(spreads.values()), rel=1e-9)
    assert np.corrcoef(logs) == pytest.approx(np.eye(3), abs=1e-9)


def test_the_same_seed_gives_the_same_members_and_another_seed_others() -> None:
    spreads = {"gemm": 0.1, "host": 0.5}
    assert all((draw(spreads)[name] == draw(spreads)[name]).all() for name in spreads)
    assert (draw(spreads, seed=1)["gemm"] != draw(spreads)["gemm"]).any()


def test_too_few_members_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 4 members"):
        draw({"a": 0.1, "b": 0.1, "c": 0.1}, members=4)


def test_every_member_is_what_its_factors_give_one_by_one() -> None:
    loaded = scenario()
    factors = draw(calibration_of(loaded).spreads)
    program = Program(loaded, "fal")
    together = run_step(program, prices_of(loaded, factors)).seconds
    for member in (0, 7, 47):
        alone = prices_of(loaded, {name: float(values[member]) for name, values in factors.items()})
        assert together[member] == pytest.approx(float(run_step(program, alone).seconds), rel=1e-12)


def test_intervals_hold_the_point_and_a_gain_is_narrower_than_the_steps_it_compares() -> None:
    result = simulate(scenario())
    gpt, fal = result["gpt"], result["fal"]
    for each in (gpt, fal):
        assert each.step_time_interval_s is not None
        low, high = each.step_time_interval_s
        assert low < each.step_time_s < high
    assert gpt.speedup_interval == (1.0, 1.0)
    assert fal.speedup_interval is not None
    paired = fal.speedup_interval[1] / fal.speedup_interval[0]
    unpaired = (gpt.step_time_interval_s[1] / fal.step_time_interval_s[0]) / (
        gpt.step_time_interval_s[0] / fal.step_time_interval_s[1]
    )
    assert paired < unpaired**0.5  # what both share cancels


def test_a_slow_uncertain_link_widens_the_gain() -> None:
    fast = simulate(scenario())["fal"].speedup_interval
    slow = simulate(scenario("cluster.intra_node=pcie4-shared-root"))["fal"].speedup_interval
    assert fast is not None
    assert slow is not None
    assert slow[1] - slow[0] > fast[1] - fast[0]
