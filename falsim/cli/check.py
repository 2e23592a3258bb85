"""`falsim check`: is a scenario valid?"""

import click

from falsim.scenario import Scenario, load_scenario
from falsim.yaml_source import Problem, SourceError


@click.command("check")
@click.argument("scenarios", nargs=-1, required=True, metavar="SCENARIO...")
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a value first; repeatable.")
@click.pass_context
def command(ctx: click.Context, scenarios: tuple[str, ...], overrides: tuple[str, ...]) -> None:
    """Say whether scenarios are valid, or everything that is wrong with them.

    SCENARIO is a file, or - for standard input.
    """
    problems: list[Problem] = []
    for source in scenarios:
        try:
            scenario = load_scenario(source, overrides)
        except SourceError as error:
            problems += error.problems
        else:
            click.echo(f"ok: {_summary(scenario)}")
            if not ctx.obj.quiet:
                for note in scenario.notes:
                    click.echo(f"note: {note}", err=True)
    if problems:
        raise SourceError(problems)


def _summary(scenario: Scenario) -> str:
    """One line: what runs on what, split how."""
    split, cluster = scenario.parallelism, scenario.cluster
    degrees = {"TP": split.tensor, "CP": split.context, "PP": split.pipeline, "DP": split.data, "EP": split.expert}
    used = " × ".join(f"{name}{degree}" for name, degree in degrees.items() if degree > 1)
    plural = "" if scenario.world_size == 1 else "s"
    return (
        f"{scenario.name}: {scenario.world_size} GPU{plural}, {cluster.nodes} × {cluster.gpus_per_node} "
        f"{cluster.gpu.title}{f', {used}' if used else ''}, {scenario.model.title}, "
        f"{scenario.num_micro_batches} micro-batch{'' if scenario.num_micro_batches == 1 else 'es'} per step, "
        f"{', '.join(scenario.architectures)}"
    )
