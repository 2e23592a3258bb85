"""`falsim run`: what a step of each architecture costs, and whether FAL would pay."""

import sys
from typing import TYPE_CHECKING

import click

from falsim.cli import EXIT_DOES_NOT_FIT
from falsim.cli.output import named_file, refuse_input_as_output, table_shape, write_output
from falsim.scenario import Scenario, load_scenario
from falsim.scenario.schema import ARCHITECTURES
from falsim.units import format_quantity

if TYPE_CHECKING:
    from falsim.simulate import Result


@click.command("run")
@click.argument("scenario", metavar="SCENARIO")
@click.option(
    "--format", "style", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True, help="Output."
)
@click.option("-o", "--output", metavar="FILE", callback=named_file, help="File to write; default: stdout.")
@click.option(
    "--architecture",
    "architectures",
    multiple=True,
    type=click.Choice(ARCHITECTURES, case_sensitive=False),
    metavar="NAME",
    help=f"Price only this one; repeatable. {', '.join(ARCHITECTURES)}.",
)
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a value first; repeatable.")
@click.pass_context
def command(
    ctx: click.Context,
    scenario: str,
    style: str,
    output: str | None,
    architectures: tuple[str, ...],
    overrides: tuple[str, ...],
) -> None:
    """Price one training step of each architecture.

    SCENARIO is a file, or - for standard input. Exits with 3 when an architecture does not fit in memory; the output is
    complete all the same.
    """
    loaded = load_scenario(scenario, overrides)
    if architectures:
        loaded = loaded.model_copy(update={"architectures": tuple(dict.fromkeys(architectures))})
    refuse_input_as_output(scenario, output)
    to_file = output not in (None, "-")
    result, text = _priced(loaded, style, to_file=to_file)
    write_output(text, output)
    over = [each for each in result.results if not each.fits]
    if over and (style != "table" or to_file or not sys.stdout.isatty()):  # else the verdict has just said so
        needs = ", ".join(f"{each.architecture} needs {_gib(float(each.memory.peak))}" for each in over)
        click.echo(f"does not fit in memory: {needs}; one GPU has {_gib(over[0].memory_capacity)}", err=True)
    if over:
        ctx.exit(EXIT_DOES_NOT_FIT)


def _priced(scenario: Scenario, style: str, *, to_file: bool) -> "tuple[Result, str]":
    """The result and how it is written; numpy and rich are loaded here, after the scenario was found valid."""
    from falsim.report.verdict import subject, verdict
    from falsim.simulate import simulate
    from falsim.studies.break_even import break_even

    result = simulate(scenario)
    about = subject(scenario.architectures)
    even = break_even(scenario, about) if about is not None and scenario.parallelism.tensor > 1 else None
    sentence = verdict(result, even)
    if style == "json":
        from falsim.report.as_json import json_text

        return result, json_text(result, even, sentence)
    if style == "csv":
        from falsim.report.as_csv import csv_text

        return result, csv_text(result)
    from falsim.report.as_table import table_text

    width, color = table_shape(to_file=to_file)
    return result, table_text(result, sentence, width, color=color)


def _gib(size: float) -> str:
    return format_quantity(size, "bytes", digits=4)
