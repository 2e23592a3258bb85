"""`falsim init`: a commented scenario to start from."""

import os
from pathlib import Path

import click

from falsim.cli.output import OutputError, named_file, write_output

TEMPLATE = Path(__file__).with_name("scenario_template.yaml")


@click.command("init")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    default="scenario.yaml",
    show_default=True,
    callback=named_file,
    help="File to write; - for stdout.",
)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.pass_context
def command(ctx: click.Context, output: str, force: bool) -> None:
    """Write a commented scenario to start from.

    It is valid as it stands, and shows every field with its meaning and what it may be.
    """
    if output != "-" and os.path.lexists(output) and not force:
        raise OutputError(f"{output} exists (choose another with -o, or --force to replace it)")
    write_output(TEMPLATE.read_text(encoding="utf-8"), output)
    if output != "-" and not ctx.obj.quiet:
        click.echo(f"wrote {output} (next: falsim run {output})", err=True)
