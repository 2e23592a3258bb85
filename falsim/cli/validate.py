"""`falsim validate`: how far predictions are from what others measured."""

import shutil
import sys
from typing import TYPE_CHECKING

import click

from falsim.cli.output import write_output

if TYPE_CHECKING:
    from falsim.calibration.validate import Validation

EXIT_ABOVE_LIMIT = 1
FILE_WIDTH = 100
"""Columns of a table that no terminal shows."""


@click.command("validate")
@click.option("--steps", metavar="FILE", help="Whole training steps, CSV.")
@click.option("--nanotron", metavar="FILE", help="Runs of nanotron with memory and outcomes, CSV.")
@click.option("--collectives", metavar="FILE", help="Timed collectives, CSV.")
@click.option("--kernels", metavar="FILE", help="Timed kernels, CSV.")
@click.option("--calibration", metavar="NAME", help="Price every row with this one; default: by set and GPU.")
@click.option(
    "--format", "style", type=click.Choice(["table", "json"]), default="table", show_default=True, help="Output."
)
@click.option("-o", "--output", metavar="FILE", help="File to write; default: stdout.")
@click.option("--plot", metavar="FILE", help="Also draw predicted against measured, as an HTML page.")
@click.option("--max-mape", type=click.FloatRange(min=0), metavar="PERCENT", help="Exit with 1 if any set's is higher.")
@click.pass_context
def command(
    ctx: click.Context,
    steps: str | None,
    nanotron: str | None,
    collectives: str | None,
    kernels: str | None,
    calibration: str | None,
    style: str,
    output: str | None,
    plot: str | None,
    max_mape: float | None,
) -> None:
    """Compare predictions with tables of measurements.

    The tables stay where they are, and nothing is fitted on them: the shipped constants are what is judged. Rows that
    cannot be predicted are counted by reason; what was taken for blank cells is listed.
    """
    files = {"--steps": steps, "--nanotron": nanotron, "--collectives": collectives, "--kernels": kernels}
    if not any(files.values()):
        raise click.UsageError(f"Nothing to compare with: give at least one of {', '.join(files)}.")
    _check_names(calibration, plot)
    from falsim.calibration.validate import validate

    validation = validate(steps, nanotron, collectives, kernels, calibration)
    write_output(_text(validation, style, to_file=output not in (None, "-")), output)
    if plot is not None:
        from falsim.report.validation_plot import validation_html

        write_output(validation_html(validation), plot)
    above = validation.above(max_mape) if max_mape is not None else ()
    if above:
        listed = ", ".join(f"{name} {mape:.1f}%" for name, mape in above)
        click.echo(f"above --max-mape {max_mape:g}%: {listed}", err=True)
        ctx.exit(EXIT_ABOVE_LIMIT)


def _check_names(calibration: str | None, plot: str | None) -> None:
    """Fail before the work where an option cannot be followed."""
    from falsim.catalog.calibration import calibration_names
    from falsim.report.validation_plot import PlotlyMissing, require_plotly

    if calibration is not None and calibration not in calibration_names():
        shipped = ", ".join(calibration_names())
        raise click.UsageError(f"unknown calibration {calibration!r} (shipped: {shipped})")
    if plot is not None:
        try:
            require_plotly()
        except PlotlyMissing as error:
            raise click.UsageError(str(error)) from None


def _text(validation: "Validation", style: str, *, to_file: bool) -> str:
    if style == "json":
        from falsim.report.validation_json import validation_json

        return validation_json(validation)
    from falsim.report.validation_table import validation_text

    terminal = not to_file and sys.stdout.isatty()
    return validation_text(validation, shutil.get_terminal_size((FILE_WIDTH, 24)).columns if terminal else FILE_WIDTH)
