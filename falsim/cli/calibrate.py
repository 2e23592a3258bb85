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
    from falsim.calibration.fit import FEWEST, ScipyMissing, calibrations_of

    try:
        wanted = {catalog.gpu(name).name for name in gpus}
        fitted = calibrations_of(kernels, wanted or None)
    except (catalog.UnknownEntry, ScipyMissing) as error:
        raise click.UsageError(str(error)) from None
    folder = Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(f"cannot write to {output}: {error.strerror}") from None
    for name, text in fitted.items():
        if text is None:
            click.echo(f"{name}: fewer than {FEWEST} rows of products and of attention, nothing fitted", err=True)
            continue
        path = folder / f"{name}.yaml"
        write_output(text, str(path))
        click.echo(str(path))
