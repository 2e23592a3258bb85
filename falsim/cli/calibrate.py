"""`falsim calibrate`: constants of the cost model from measurements."""

from pathlib import Path

import click

from falsim.cli.output import write_output


@click.group("calibrate")
def command() -> None:
    """Constants of the cost model from measurements."""


@command.command("fit")
@click.option("--kernels", required=True, metavar="FILE", help="Timed kernels, CSV.")
@click.option("--gpu", "gpus", multiple=True, metavar="NAME", help="Fit only this GPU; repeatable.")
@click.option("-o", "--output", required=True, metavar="FOLDER", help="Folder for one YAML file per GPU.")
def fit(kernels: str, gpus: tuple[str, ...], output: str) -> None:
    """Fit kernel constants and write one calibration per GPU with enough rows.

    The same table gives the same files.
    """
    from falsim import catalog
    from falsim.calibration.fit import FEWEST, calibrations_of

    try:
        wanted = {catalog.gpu(name).name for name in gpus}
    except catalog.UnknownEntry as unknown:
        raise click.UsageError(str(unknown)) from None
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in calibrations_of(kernels, wanted or None).items():
        path = folder / f"{name}.yaml"
        if text is None:
            click.echo(f"{name}: fewer than {FEWEST} rows of products and of attention, nothing fitted", err=True)
            continue
        write_output(text, str(path))
        click.echo(str(path))
