"""The command line: a group that loads a command's module only when that command runs.

Exit codes: 0 done, or the reader of a pipe left; 1 a check's answer is no;
2 wrong usage, scenario, input or output; 3 does not fit in memory; 70 internal error; 130 interrupted.
"""

try:
    import importlib
    import io
    import os
    import re
    import sys
    import traceback
    from collections.abc import Iterator, Sequence
    from contextlib import contextmanager
    from dataclasses import dataclass
    from typing import Any

    import click

    from falsim import __version__
except KeyboardInterrupt:  # before there is a command that could say so
    raise SystemExit(130) from None

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
    "calibrate": ("falsim.cli.calibrate", "Fit constants of the cost model to measurements."),
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

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """As click does; a wrong usage is told in the same words as a wrong scenario, and Ctrl-C exits with 130."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        _prepare_stdout()
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except (click.Abort, KeyboardInterrupt):
            code = _interrupted()
        except click.ClickException as error:
            text = io.StringIO()
            error.show(file=text)
            click.echo(re.sub("^Error: ", "error: ", text.getvalue(), flags=re.MULTILINE), nl=False, err=True)
            code = error.exit_code
        sys.exit(code if isinstance(code, int) else 0)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """As click does; `--help` and `--version` write here already."""
        with _stdout_failures():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; failures become messages on stderr and the documented exit codes."""
        verbosity = Verbosity(quiet=bool(ctx.params["quiet"]), verbose=bool(ctx.params["verbose"]))
        ctx.obj = verbosity
        try:
            with _stdout_failures():
                return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort, click.ClickException):
            raise
        except KeyboardInterrupt:
            ctx.exit(_interrupted())
        except Exception as error:
            ctx.exit(_report(error, verbosity))


class ClosedOutput(io.RawIOBase):
    """Stands for a standard output that was closed before falsim started: writing fails as it would."""

    def writable(self) -> bool:
        """Whether it may be written to, and so found closed."""
        return True

    def write(self, data: Any) -> int:
        """Raise OSError."""
        raise OSError("it is closed")


def _prepare_stdout() -> None:
    """Let every command write what it likes: a terminal without × or █ still gets its table, a closed one an error."""
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(ClosedOutput(), encoding="utf-8", write_through=True)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


@contextmanager
def _stdout_failures() -> Iterator[None]:
    """Exit with 0 where the reader of a pipe has left, with 2 and a line where stdout cannot be written.

    An OSError about a file names it; one without a file name comes from writing to a stream.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # here, where a failure can still be handled
    except BrokenPipeError:
        _discard_stdout()
        raise click.exceptions.Exit(0) from None
    except OSError as error:
        if error.filename is not None:
            raise
        _discard_stdout()
        click.echo(f"error: cannot write to standard output: {error.strerror or error}", err=True)
        raise click.exceptions.Exit(EXIT_WRONG_INPUT) from None


def _interrupted() -> int:
    """Say so, and return the exit code."""
    click.echo("interrupted", err=True)
    return EXIT_INTERRUPTED


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
    """Send what is still buffered nowhere: it cannot be written."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    except io.UnsupportedOperation:  # a stand-in that buffers nothing
        sys.stdout = open(nowhere, "w", encoding="utf-8")  # noqa: SIM115  until the process ends


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="falsim")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing on stderr but what is wrong.")
@click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an internal error.")
def main(quiet: bool, verbose: bool) -> None:
    """What a transformer block costs on your GPUs and links, and whether FAL or another block would pay."""
