"""A result for people: what was priced, a table, bars, the measured value, notes, and the verdict."""

from __future__ import annotations

import io

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from falsim.catalog.calibration import calibration
from falsim.catalog.parameters import parameter_count
from falsim.report.bars import bars
from falsim.report.breakdown import breakdown
from falsim.report.measured import Comparison, comparisons
from falsim.report.remarks import remarks
from falsim.report.wording import Scale, compact, gib, parameters, speedup
from falsim.scenario import Scenario
from falsim.simulate import ArchitectureResult, Result
from falsim.units import format_quantity

NARROWEST = 76
"""Columns the table needs; a narrower terminal wraps its lines."""
WIDEST = 120
"""Columns beyond which longer lines and bars only get harder to read."""
ROOMY = 96
"""From here on the table's columns stand further apart."""


def table_text(result: Result, verdict: str, width: int, *, color: bool) -> str:
    """The report, at most `width` columns wide; ANSI colours only where `color` is set."""
    width = max(NARROWEST, min(width, WIDEST))
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=width,
        force_terminal=color,
        color_system="truecolor" if color else None,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    scale = Scale.of(each.step_time_s for each in result.results)
    console.print(_heading(result))
    console.print()
    console.print(_table(result, scale, roomy=width >= ROOMY))
    for each in result.results:
        for remark in remarks(result.scenario, each.architecture):
            console.print(Text(f"{each.architecture}: {remark}", style="dim"))
    console.print()
    console.print(bars(result.results, scale, width))
    console.print()
    for line in _measured(result, scale):
        console.print(line)
    for note in result.notes:
        console.print(f"note: {note}")
    console.print(Padding(Text(verdict, style="bold"), (1 if result.measured or result.notes else 0, 0, 0, 0)))
    return "".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines())


def _heading(result: Result) -> Table:
    """Name, model, cluster, split, what a step processes, and how well the constants are known."""
    scenario = result.scenario
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for label, value in (
        ("scenario", Text(scenario.name, style="bold")),
        ("model", f"{scenario.model.title}, {parameters(parameter_count(scenario.model))}"),
        ("cluster", _cluster(scenario)),
        ("split", _split(scenario)),
        ("step", _step(scenario)),
        ("constants", _constants(result)),
    ):
        grid.add_row(Text(label, style="dim"), value)
    return grid


def _cluster(scenario: Scenario) -> str:
    cluster = scenario.cluster
    gpus = f"{scenario.world_size:,} × {cluster.gpu.title}"
    inside = f"{_preset(cluster.intra_node.preset, cluster.intra_node.kind)} {_rate(cluster.intra_node.bandwidth)}"
    if cluster.nodes == 1 or cluster.inter_node is None:
        return gpus if cluster.gpus_per_node == 1 else f"{gpus}, {inside}"
    between = f"{_preset(cluster.inter_node.preset, cluster.inter_node.kind)} {_rate(cluster.inter_node.bandwidth)}"
    where = f"in {cluster.nodes:,} nodes, {between} × {cluster.inter_node.nics_per_node} between"
    return f"{gpus} {where}" if cluster.gpus_per_node == 1 else f"{gpus} {where}, {inside} inside"


def _preset(preset: str | None, kind: str) -> str:
    return preset or kind


def _rate(bandwidth: float) -> str:
    return format_quantity(bandwidth, "bandwidth")


def _split(scenario: Scenario) -> str:
    split = scenario.parallelism
    degrees = {"TP": split.tensor, "CP": split.context, "PP": split.pipeline, "DP": split.data, "EP": split.expert}
    words = [" × ".join(f"{name}{degree}" for name, degree in degrees.items() if degree > 1) or "one GPU"]
    if split.sequence and split.tensor > 1:
        words.append("sequence parallel")
    if split.pipeline > 1:
        chunks = f" × {split.virtual_pipeline}" if split.virtual_pipeline > 1 else ""
        words.append(f"{split.pipeline_schedule}{chunks}")
    if split.zero and split.data * split.context > 1:
        words.append(f"ZeRO-{split.zero}")
    return ", ".join(words)


def _step(scenario: Scenario) -> str:
    training = scenario.training
    micro = "" if scenario.num_micro_batches == 1 else f" in micro-batches of {training.micro_batch_size}"
    recompute = "no" if training.recompute == "none" else training.recompute
    sequences = f"{training.global_batch_size:,} sequence{'' if training.global_batch_size == 1 else 's'}"
    return (
        f"{sequences} × {training.sequence_length:,} tokens{micro}, {training.precision}, "
        f"{training.attention} attention, {recompute} recompute"
    )


def _constants(result: Result) -> str:
    """Which constants, and how far from the step times shown the truth may be."""
    kind = "datasheet only" if result.calibration_kind == "datasheet" else calibration(result.calibration).title
    bounds = [
        (each.step_time_interval_s[0] / each.step_time_s - 1.0, each.step_time_interval_s[1] / each.step_time_s - 1.0)
        for each in result.results
        if each.step_time_interval_s is not None
    ]
    if not bounds:
        return kind
    low, high = min(low for low, _ in bounds), max(high for _, high in bounds)
    return f"{kind}; 90% intervals: step times {low:+.0%} to {high:+.0%}, speed-ups as shown"


def _table(result: Result, scale: Scale, *, roomy: bool) -> Table:
    """One row per architecture; headers take two lines so that everything fits into 80 columns."""
    piped = result.scenario.parallelism.pipeline > 1
    capacity = gib(result.results[0].memory_capacity)
    table = Table(box=None, padding=(0, 2 if roomy else 1, 0, 0), pad_edge=False, header_style="bold")
    headers = [
        "archi-\ntecture",
        f"step\n{scale.unit}",
        "tokens\n/s",
        "tok/s\n/GPU",
        "\nMFU",
        f"exposed\ncomm. {scale.unit}",
        "of\nstep",
        *(["bubble\nof step"] if piped else []),
        f"GiB of\n{capacity}",
        "\nfits",
        "speed-up\nover gpt",
    ]
    for position, header in enumerate(headers):
        table.add_column(header, justify="right" if position else "left", no_wrap=True)
    for each in result.results:
        table.add_row(*_cells(each, scale, piped=piped), style=None if each.fits else "red")
    return table


def _cells(each: ArchitectureResult, scale: Scale, *, piped: bool) -> list[str]:
    exposed, bubble = each.exposed_communication_s, breakdown(each)["pipeline_bubble"]
    return [
        each.architecture,
        scale.number(each.step_time_s),
        compact(each.tokens_per_s),
        compact(each.tokens_per_s_per_gpu),
        f"{each.mfu:.1%}",
        scale.number(exposed),
        f"{exposed / each.step_time_s:.1%}",
        *([f"{bubble / each.step_time_s:.1%}"] if piped else []),
        gib(float(each.memory.peak)),
        "yes" if each.fits else "NO",
        speedup(each.speedup_over_gpt, each.speedup_interval),
    ]


def _measured(result: Result, scale: Scale) -> list[str]:
    """The published or own value beside the prediction."""
    measured = result.measured
    if measured is None:
        return []
    lines = []
    for row in comparisons(result):
        values = [_metric(row, value, scale) for value in (row.measured, row.predicted)]
        beside = (
            f"predicted {values[1]}, {row.ratio:.2f}× the measured"
            if row.ratio is not None
            else f"{measured.architecture} was not priced here"
        )
        lines.append(f"measured: {measured.architecture} {values[0]} ({measured.source}); {beside}")
    return lines


def _metric(row: Comparison, value: float | None, scale: Scale) -> str:
    if value is None:
        return "-"
    if row.metric == "step_time_s":
        return scale.with_unit(value)
    return f"{value:.1%} MFU" if row.metric == "mfu" else f"{compact(value)} tokens/s per GPU"
