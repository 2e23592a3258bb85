"""One sentence that answers the question: would this architecture pay here, and up to which link?

A pure function of a result and its break-even point. It says first what does not fit in memory, it names the baseline's
own overlap, and it says when another architecture of the scenario is faster.
"""

from __future__ import annotations

from collections.abc import Sequence

from falsim.architectures import ARCHITECTURES
from falsim.report.wording import speedup
from falsim.simulate import ArchitectureResult, Result
from falsim.studies.break_even import PAYS, BreakEven
from falsim.units import format_quantity

BASELINE = "gpt"
BOUND = "no_sync"
SAME = 0.0005
"""Step times closer than this share are called equal: the printed digits could not tell them apart."""

_OVERLAP = {
    "none": "a GPT that hides no communication",
    "wgrad": "a GPT that hides its own backward collectives under weight gradients",
    "async_tp": "a GPT that hides its own collectives under matmul chunks",
}


def subject(architectures: Sequence[str]) -> str | None:
    """The architecture a verdict is about: FAL if asked for, else the first that is neither baseline nor bound."""
    rivals = [name for name in architectures if name not in (BASELINE, BOUND)]
    return "fal" if "fal" in rivals else next(iter(rivals), None)


def verdict(result: Result, even: BreakEven | None) -> str:
    """The sentence. `even` is the break-even point of `subject(...)`, or None where no link decides."""
    clauses = [_memory(result)]
    name = subject([each.architecture for each in result.results])
    if name is None:
        clauses.append(_nothing_to_compare(result))
    else:
        clauses += [_gain(result, result[name]), _break_even(result[name], even), _rivals(result, result[name])]
    text = "; ".join(clause for clause in clauses if clause)
    return f"{text[0].upper()}{text[1:]}."


def _memory(result: Result) -> str:
    """What does not fit; empty when everything does."""
    over = [each for each in result.results if not each.fits]
    if not over:
        return ""
    if len(over) == len(result.results) > 1:
        return f"nothing fits in memory ({_needs(over)}, a GPU has {_gib(over[0].memory_capacity)})"
    verb = "does" if len(over) == 1 else "do"
    names = _listed([_title(each.architecture) for each in over])
    return f"{names} {verb} not fit in memory ({_needs(over)}, a GPU has {_gib(over[0].memory_capacity)})"


def _needs(over: Sequence[ArchitectureResult]) -> str:
    """How much memory these architectures need, from the least to the most."""
    least, most = (_gib(pick(float(each.memory.peak) for each in over)) for pick in (min, max))
    return f"{'it needs' if len(over) == 1 else 'they need'} {least if least == most else f'{least} to {most}'}"


def _gain(result: Result, about: ArchitectureResult) -> str:
    """What the architecture saves or costs, against which baseline; in the conditional where it does not fit."""
    title = _title(about.architecture)
    saved = 1.0 - 1.0 / about.speedup_over_gpt
    ratio = f"{_times(about.speedup_over_gpt)} the speed of GPT"
    if about.speedup_interval is not None:
        low, high = about.speedup_interval
        digits = 3 if high - low < 0.02 else 2
        ratio = f"{ratio}, 90% interval {low:.{digits}f} to {high:.{digits}f}"
    if abs(saved) < SAME:
        effect = f"{title} {'takes' if about.fits else 'would take'} as long as GPT"
    elif saved > 0:
        effect = f"{title} {'saves' if about.fits else 'would save'} {saved:.1%} of the step ({ratio})"
    else:
        effect = f"{title} {'costs' if about.fits else 'would cost'} {-saved:.1%} on top of the step ({ratio})"
    if result.calibration_kind == "datasheet":
        effect = f"by datasheet values alone, {effect}"
    if not about.fits:
        effect = f"with more memory, {effect}"
    if result.scenario.parallelism.tensor == 1:
        return f"with tensor = 1 there is no all-reduce to drop: {effect}"
    implementation = result.scenario.implementation
    at_once = ", attention and MLP at once taken as an upper bound" if implementation.concurrent_attention_mlp else ""
    return f"{effect}, against {_OVERLAP[implementation.overlap]}{at_once}"


def _break_even(about: ArchitectureResult, even: BreakEven | None) -> str:
    """Up to which bandwidth the architecture is worth having."""
    if even is None:
        return ""
    pays = about.speedup_over_gpt - 1.0 >= even.threshold
    least, link = f"{even.threshold:.0%}", f"{even.path}, today {_rate(even.current)}"
    whole_range = f"at any bandwidth from {_rate(even.lowest)} to {_rate(even.highest)} ({link})"
    if even.bandwidth is None and even.pays_from is None:
        side = "above" if even.always else "below"
        return f"the gain in speed stays {side} {least} {whole_range}" if pays == even.always else ""
    if pays:
        limits = [f"from {_rate(even.pays_from)}"] if even.pays_from is not None else []
        limits += [f"up to {_rate(even.bandwidth)}"] if even.bandwidth is not None else []
        return f"the gain in speed stays above {least} {' '.join(limits)} on {link}"
    below = f"a gain in speed of {least} is out of reach on this link"
    if even.bandwidth is not None and even.bandwidth < even.current:
        return f"{below}: it would need one slower than {_rate(even.bandwidth)} ({link})"
    if even.pays_from is not None and even.pays_from > even.current:
        return f"{below}: it would need one faster than {_rate(even.pays_from)} ({link})"
    return f"{below} ({link})"


def _rivals(result: Result, about: ArchitectureResult) -> str:
    """The other architectures that are faster than both this one and GPT, fastest first; the bound is none."""
    best = max(about.speedup_over_gpt, 1.0)
    faster = sorted(
        (
            each
            for each in result.results
            if each.architecture not in (about.architecture, BASELINE, BOUND)
            and each.speedup_over_gpt > best * (1.0 + SAME)
        ),
        key=lambda each: each.step_time_s,
    )
    if not faster:
        return ""
    names = [f"{_title(each.architecture)} ({_times(each.speedup_over_gpt)})" for each in faster]
    verb = "is" if len(faster) == 1 else "are"
    return f"{_listed(names)} {verb} faster than {_title(about.architecture)} here"


def _nothing_to_compare(result: Result) -> str:
    """With the baseline and its bound alone: how much there is to gain."""
    bound = next((each for each in result.results if each.architecture == BOUND), None)
    if bound is None:
        return "only GPT was asked for, so there is nothing to compare"
    share = 1.0 - 1.0 / bound.speedup_over_gpt
    alone = "by datasheet values alone, " if result.calibration_kind == "datasheet" else ""
    most = f"{share:.1%} of GPT's step, the most that dropping them could save"
    return f"{alone}exposed tensor-parallel collectives are {most}"


def _title(architecture: str) -> str:
    return ARCHITECTURES[architecture].title


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _times(ratio: float) -> str:
    """A speed-up; with a digit more where two would hide on which side of 1 or of the threshold it is."""
    near = min(abs(ratio - 1.0), abs(ratio - 1.0 - PAYS)) < 0.01
    return f"{ratio:.3f}×" if near else speedup(ratio, None)


def _gib(size: float) -> str:
    return f"{size / 2**30:.1f} GiB"


def _rate(bandwidth: float) -> str:
    return format_quantity(bandwidth, "bandwidth")
