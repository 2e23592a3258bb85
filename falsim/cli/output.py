"""Writing a command's output: to stdout, or to a file that is either complete or untouched."""

import os
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import click

from falsim.cli import EXIT_WRONG_INPUT


class OutputError(click.ClickException):
    """An output file cannot be written."""

    exit_code = EXIT_WRONG_INPUT


def write_output(text: str, path: str | Path | None) -> None:
    """Write `text` to a file, or to stdout when `path` is None or "-".

    A file is replaced in one step: a reader sees the old or the new content, and a failure leaves the old one.

    Raises:
        OutputError: the file cannot be written.
    """
    text = text if text.endswith("\n") else text + "\n"
    if path is None or str(path) == "-":
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="replace")  # a terminal without × or █ still gets its table
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
