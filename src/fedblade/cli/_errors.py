"""Errors as the command line words them, with their exit status."""

import errno
import functools
from collections.abc import Callable
from typing import Any

import click

from fedblade.core.errors import FedbladeError, RunFailed
from fedblade.core.files import remedy
from fedblade.core.machine import memory_ran_out
from fedblade.core.standard_streams import lost_output

_WRONG_PATH = {errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EACCES, errno.EPERM}
"""Errors of the operating system that a path of the user has caused; the user can give another one."""


def worded(error: Exception) -> tuple[str, int]:
    """The message for an error, and the exit status. An unexpected error is called a bug."""
    match error:
        case click.ClickException():
            used = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "fedblade"
            return f"{error.format_message()}{_setting_as_option(error)} Try '{used} --help'.", error.exit_code
        case FedbladeError():
            return str(error), error.exit_status
        case OSError(errno=int(), strerror=str()):
            file = "" if error.filename is None else f"'{error.filename}': "
            return f"{file}{error.strerror}. {remedy(error)}.", 2 if error.errno in _WRONG_PATH else 1
    if memory_ran_out(error):
        what = f": {error}" if str(error) else ""
        return f"the memory of this machine is too small{what}. End other processes, or ask for less.", 1
    return f"unexpected {type(error).__name__}: {error}. This is a bug; --debug shows where.", 1


def _setting_as_option(error: click.ClickException) -> str:
    """What to write in place of an option that a command lacks, if the command takes settings; empty otherwise."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return ""
    if all(parameter.name != "assignments" for parameter in error.ctx.command.params):
        return ""
    return f" A setting is changed with --set {error.option_name.lstrip('-').replace('-', '_')}=VALUE."


def refuse_lost_output() -> None:
    """Fail if standard output could not be written, unless its reader went away on purpose (`| head -1`)."""
    lost = lost_output()
    if lost is not None and not isinstance(lost, BrokenPipeError):
        raise RunFailed(f"standard output cannot be written: {lost.strerror}. {remedy(lost)}.")


def only_prints(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command that does nothing but print, so that it fails if its output is lost."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        result = command(*arguments, **options)
        refuse_lost_output()
        return result

    return run
