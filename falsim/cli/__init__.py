"""The command line: a group that loads a command's module only when that command runs.

Exit codes: 0 done; 1 a check's answer is no; 2 wrong usage or scenario; 3 does not fit in memory; 70 internal error;
130 interrupted.
"""

import importlib
import os
import sys
import traceback
from dataclasses import dataclass
from typing import Any

import click

from falsim import __version__

EXIT_WRONG_INPUT = 2
EXIT_DOES_NOT_FIT = 3
EXIT_INTERNAL_ERROR = 70
EXIT_INTERRUPTED = 130

# Command: the module that holds its click command `command`, and the line `falsim --help` shows for it.
_COMMANDS = {
    "run": ("falsim.cli.run", "Price a scenario: step time, memory and speed-up of each architecture."),
    "check": ("falsim.cli.check", "Say whether scenarios are valid, or everything that is wrong with them."),
    "init": ("falsim.cli.init", "Write a commented scenario to start from."),
    "schema": ("falsim.cli.schema", "Print the JSON Schema of scenario files, for completion in editors."),
    "validate": ("falsim.cli.validate", "Say how far predictions are from tables of measurements."),
    "catalog": ("falsim.cli.catalog", "List and show the GPUs, links, nodes and models that falsim knows."),
}


@dataclass(frozen=True)
class Verbosity:
    """How much is said on stderr; a command finds it in `click.Context.obj`."""

    quiet: bool = False
    verbose: bool = False


class LazyGroup(click.Group):
    """A group that imports a command when it runs, and turns every failure into a line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of the table."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, imported now; None when there is none."""
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = importlib.import_module(_COMMANDS[cmd_name][0]).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; an unknown command gets the closest name proposed."""
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            import difflib

            close = difflib.get_close_matches(args[0], _COMMANDS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(_COMMANDS)}"
            ctx.fail(f"No such command {args[0]!r} ({hint}).")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; failures become messages on stderr and the documented exit codes."""
        verbosity = Verbosity(quiet=bool(ctx.params["quiet"]), verbose=bool(ctx.params["verbose"]))
        ctx.obj = verbosity
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()  # here, where a closed pipe can still be handled
        except (click.exceptions.Exit, click.Abort, click.ClickException):
            raise
        except BrokenPipeError:
            _discard_stdout()
            ctx.exit(0)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(EXIT_INTERRUPTED)
        except Exception as error:
            ctx.exit(_report(error, verbosity))


def _report(error: Exception, verbosity: Verbosity) -> int:
    """Print a failure on stderr and return its exit code."""
    from falsim.yaml_source import SourceError

    if isinstance(error, SourceError):
        for problem in error.problems:
            click.echo(str(problem), err=True)
        return EXIT_WRONG_INPUT
    if verbosity.verbose:
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    what = " ".join(f"{type(error).__name__}: {error}".split())
    hint = "" if verbosity.verbose else " (this is a bug in falsim; `falsim -v ...` shows the traceback)"
    click.echo(f"internal error: {what}{hint}", err=True)
    return EXIT_INTERNAL_ERROR


def _discard_stdout() -> None:
    """Send what is still buffered nowhere: the reader of the pipe has left."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="falsim")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing on stderr but what is wrong.")
@click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an internal error.")
def main(quiet: bool, verbose: bool) -> None:
    """What a transformer block costs on your GPUs and links, and whether FAL or another block would pay."""
