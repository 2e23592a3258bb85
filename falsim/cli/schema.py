"""`falsim schema`: the JSON Schema of scenario files."""

import json

import click

from falsim.cli.output import named_file, write_output
from falsim.scenario import json_schema


@click.command("schema")
@click.option("-o", "--output", metavar="FILE", callback=named_file, help="File to write; default: stdout.")
def command(output: str | None) -> None:
    """Print the JSON Schema of scenario files, for completion in editors.

    With the YAML language server, write it to scenario.schema.json and start a scenario with the line
    "# yaml-language-server: $schema=scenario.schema.json".
    """
    write_output(json.dumps(json_schema(), indent=2, ensure_ascii=False), output)
