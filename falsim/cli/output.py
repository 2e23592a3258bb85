"""Writing a command's output: to stdout, or to a file that is either complete or untouched."""

import os
import shutil
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import click

from falsim.cli import EXIT_WRONG_INPUT

FILE_WIDTH = 100
"""Columns of a table that no terminal shows."""


class OutputError(click.ClickException):
    """An output file cannot be written."""

    exit_code = EXIT_WRONG_INPUT


def named_file(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """The callback of an option that names a file: refuses an empty name."""
    if value == "":
        raise click.BadParameter("an empty file name (name a file, or - for stdout)", ctx, parameter)
    return value


def refuse_input_as_output(source: str, output: str | None) -> None:
    """Refuse to replace the file that a command reads by what it writes.

    Raises:
        OutputError: both are the same regular file, whatever their names; `-` is standard input or output.
    """
    if output in (None, "-"):
        return
    try:
        written = os.stat(str(output))
        read = os.fstat(sys.stdin.fileno()) if source == "-" else os.stat(source)
    except (OSError, ValueError, AttributeError):
        return  # there is none yet, or standard input is no file
    if stat.S_ISREG(written.st_mode) and os.path.samestat(read, written):
        raise OutputError(f"cannot write {output}: it is the scenario itself (choose another file with -o)")


def table_shape(*, to_file: bool = False) -> tuple[int, bool]:
    """Columns for a table, and whether it may have colours: what the terminal shows, or FILE_WIDTH and none."""
    if to_file:
        return FILE_WIDTH, False
    color = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return shutil.get_terminal_size((FILE_WIDTH, 24)).columns, color


def write_output(text: str, path: str | Path | None) -> None:
    """Write `text` to a file, or to stdout when `path` is None or "-".

    A file is replaced in one step: a reader sees the old or the new content, and a failure leaves the old one.

    Raises:
        OutputError: the file cannot be written.
    """
    text = text if text.endswith("\n") else text + "\n"
    if path is None or str(path) == "-":
        click.echo(text, nl=False)
        return
    try:
        target = Path(path).resolve()
        if target.exists() and not stat.S_ISREG(target.stat().st_mode):
            target.write_text(text, encoding="utf-8")  # a device or a pipe: nothing to replace
        else:
            _replace(target, text)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from None
    except ValueError as error:  # a name that no file system takes
        raise OutputError(f"cannot write {path!r}: {error}") from None


def _replace(target: Path, text: str) -> None:
    """Write beside the target, flush to disk, then rename over it, keeping the mode of an existing file."""
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _umask() -> int:
    """The process's file mode mask; reading it means setting it for a moment."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
