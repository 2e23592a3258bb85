"""The verdict says what a result means, and no more than it means. Every result here is made by hand."""

from dataclasses import replace

import pytest

from falsim.program.counts import CollectiveCounts, Tally
from falsim.program.memory import Memory
from falsim.report.verdict import subject, verdict
from falsim.scenario import Scenario, load_scenario
from falsim.simulate import ArchitectureResult, Result
from falsim.studies.break_even import BreakEven

SCENARIO = """
model: gpt2-1.5b
cluster: {gpu: rtx-4090, gpus_per_node: 4, intra_node: pcie4-shared-root}
parallelism: {tensor: %d}
training: {sequence_length: 1024, global_batch_size: 4}
implementation: {overlap: %s}
"""
GIB = 2.0**30
EVEN = BreakEven(
    path="cluster.intra_node.bandwidth",
    architecture="fal",
    threshold=0.05,
    current=31.5e9,
    bandwidth=92e9,
    always=False,
    lowest=31.5e6,
    highest=31.5e12,
)


def scenario(tensor: int = 4, overlap: str = "wgrad") -> Scenario:
    return load_scenario(SCENARIO % (tensor, overlap))


def priced(name: str, speedup: float, peak: float = 10.0) -> ArchitectureResult:
    """An architecture `speedup` times as fast as a GPT of one second, with a peak in GiB of a GPU of 24."""
    none = Tally()
    return ArchitectureResult(
        architecture=name,
        equation="",
        step_time_s=1.0 / speedup,
        step_time_interval_s=None,
        tokens_per_s=1.0,
        tokens_per_s_per_gpu=1.0,
        mfu=0.5,
        mfu_causal=0.5,
        hfu=0.5,
        speedup_over_gpt=speedup,
        speedup_interval=None,
        breakdown_s={},
        tensor_communication_s=0.0,
        collectives=CollectiveCounts(none, none, none, none, none, none, none),
        memory=Memory({"weights": peak * GIB}),
        memory_capacity=24.0 * GIB,
    )


def result(*results: ArchitectureResult, tensor: int = 4, overlap: str = "wgrad", kind: str = "fitted") -> Result:
    return Result(scenario(tensor, overlap), "0" * 16, "name", kind, results, None, ())


def test_it_is_about_fal_else_about_the_first_that_is_neither_baseline_nor_bound() -> None:
    assert subject(["gpt", "ladder", "fal"]) == "fal"
    assert subject(["gpt", "no_sync", "ladder", "parallel"]) == "ladder"
    assert subject(["gpt", "no_sync"]) is None


def test_a_gain_is_told_with_its_baseline_and_its_break_even_bandwidth() -> None:
    assert verdict(result(priced("gpt", 1.0), priced("fal", 1.25)), EVEN) == (
        "FAL saves 20.0% of the step (1.25× the speed of GPT), against a GPT that hides its own backward collectives "
        "under weight gradients; the gain in speed stays above 5% up to 92 GB/s on cluster.intra_node.bandwidth, "
        "today 31.5 GB/s."
    )


def test_datasheet_values_are_named_as_such() -> None:
    text = verdict(result(priced("gpt", 1.0), priced("fal", 1.25), kind="datasheet"), EVEN)
    assert text.startswith("By datasheet values alone, FAL saves 20.0%")


@pytest.mark.parametrize(
    ("overlap", "baseline"),
    [
        ("none", "a GPT that hides no communication"),
        ("async_tp", "a GPT that hides its own collectives under matmul chunks"),
    ],
)
def test_the_baselines_overlap_is_named(overlap: str, baseline: str) -> None:
    assert baseline in verdict(result(priced("gpt", 1.0), priced("fal", 1.25), overlap=overlap), EVEN)


def test_running_attention_and_mlp_at_once_is_called_an_upper_bound() -> None:
    plain = result(priced("gpt", 1.0), priced("fal", 1.25))
    switches = plain.scenario.implementation.model_copy(update={"concurrent_attention_mlp": True})
    both = replace(plain, scenario=plain.scenario.model_copy(update={"implementation": switches}))
    assert "attention and MLP at once taken as an upper bound" in verdict(both, EVEN)
    assert "upper bound" not in verdict(plain, EVEN)


def test_a_loss_is_told_as_a_cost_and_says_which_link_it_would_take() -> None:
    text = verdict(result(priced("gpt", 1.0), priced("fal", 0.8)), replace(EVEN, current=300e9))
    assert text.startswith("FAL costs 25.0% on top of the step (0.80× the speed of GPT)")
    assert "a gain in speed of 5% is out of reach on this link: it would need one slower than 92 GB/s" in text
    assert "today 300 GB/s" in text
    assert "saves" not in text


def test_a_gain_below_the_threshold_is_not_told_as_one_that_pays() -> None:
    text = verdict(result(priced("gpt", 1.0), priced("fal", 1.04)), replace(EVEN, current=300e9))
    assert "FAL saves 3.8%" in text
    assert "5% is out of reach on this link" in text
    assert "stays above" not in text


def test_a_gain_at_every_bandwidth_is_told_with_the_range_looked_at() -> None:
    text = verdict(result(priced("gpt", 1.0), priced("fal", 1.25)), replace(EVEN, bandwidth=None, always=True))
    assert "the gain in speed stays above 5% at any bandwidth from 31.5 MB/s to 31.5 TB/s" in text


def test_a_gain_at_no_bandwidth_is_told_so() -> None:
    text = verdict(result(priced("gpt", 1.0), priced("fal", 0.99)), replace(EVEN, bandwidth=None, always=False))
    assert "the gain in speed stays below 5% at any bandwidth from 31.5 MB/s to 31.5 TB/s" in text


def test_equal_times_are_called_equal() -> None:
    assert "FAL takes as long as GPT" in verdict(result(priced("gpt", 1.0), priced("fal", 1.0002)), None)


def test_a_difference_that_two_decimals_would_hide_gets_a_third() -> None:
    assert "0.996×" in verdict(result(priced("gpt", 1.0), priced("fal", 0.996)), None)


@pytest.mark.parametrize(("speedup", "text"), [(1.047, "1.047×"), (1.0534, "1.053×"), (1.07, "1.07×")])
def test_near_the_threshold_three_digits_tell_the_side(speedup: float, text: str) -> None:
    assert f"({text} the speed of GPT)" in verdict(result(priced("gpt", 1.0), priced("fal", speedup)), EVEN)


def test_without_tensor_parallelism_there_is_nothing_to_drop() -> None:
    text = verdict(result(priced("gpt", 1.0), priced("fal", 0.98), tensor=1), None)
    assert text.startswith("With tensor = 1 there is no all-reduce to drop: FAL costs 2.0% on top of the step")
    assert "GB/s" not in text


def test_what_does_not_fit_comes_first_and_its_gain_is_conditional() -> None:
    text = verdict(result(priced("gpt", 1.0), priced("fal", 1.25, peak=30.0)), EVEN)
    assert text.startswith("FAL does not fit in memory (it needs 30.0 GiB, a GPU has 24.0 GiB); with more memory, FAL")
    assert "would save 20.0%" in text


def test_when_nothing_fits_that_is_said_once() -> None:
    text = verdict(result(priced("gpt", 1.0, peak=28.0), priced("fal", 1.25, peak=30.0)), EVEN)
    assert text.startswith("Nothing fits in memory (they need 28.0 GiB to 30.0 GiB, a GPU has 24.0 GiB); ")


def test_faster_rivals_are_named_fastest_first_and_the_bound_is_none() -> None:
    names = {"gpt": 1.0, "fal": 1.2, "fal_plus": 0.9, "parallel": 1.3, "ladder": 1.4, "no_sync": 2.0}
    text = verdict(result(*(priced(name, speedup) for name, speedup in names.items())), EVEN)
    assert text.endswith("; Ladder (1.40×) and parallel (1.30×) are faster than FAL here.")


def test_a_rival_slower_than_gpt_is_no_advice_when_fal_loses() -> None:
    text = verdict(result(priced("gpt", 1.0), priced("fal", 0.8), priced("ladder", 0.9)), None)
    assert "ladder" not in text.lower()


def test_gpt_alone_is_nothing_to_compare_and_its_bound_is_what_there_is_to_save() -> None:
    assert verdict(result(priced("gpt", 1.0)), None) == "Only GPT was asked for, so there is nothing to compare."
    text = verdict(result(priced("gpt", 1.0), priced("no_sync", 1.25)), None)
    assert text.startswith("Exposed tensor-parallel collectives are 20.0% of GPT's step")
    text = verdict(result(priced("gpt", 1.0), priced("no_sync", 1.25), kind="datasheet"), None)
    assert text.startswith("By datasheet values alone, exposed tensor-parallel collectives are 20.0%")


def test_several_that_do_not_fit_are_told_with_the_range_they_need() -> None:
    bound = priced("no_sync", 2.0, peak=28.0)
    text = verdict(result(priced("gpt", 1.0), priced("fal", 1.25, peak=30.0), bound), EVEN)
    assert text.startswith("FAL and the no-sync bound do not fit in memory (they need 28.0 GiB to 30.0 GiB, a GPU has")
    text = verdict(result(priced("gpt", 1.0), priced("fal", 1.25), bound), EVEN)
    assert text.startswith(
        "The no-sync bound does not fit in memory (it needs 28.0 GiB, a GPU has 24.0 GiB); FAL saves"
    )


def test_it_is_one_sentence() -> None:
    text = verdict(result(priced("gpt", 1.0), priced("fal", 1.25, peak=30.0), priced("ladder", 1.4)), EVEN)
    assert text.count(". ") == 0
    assert text.endswith(".")
    assert "\n" not in text
