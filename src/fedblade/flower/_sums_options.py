"""Readers of tables name the settings of data set `files` in their errors; here these are options of a command."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from fedblade.core.errors import Misconfigured

_SETTING = re.compile(r"\bdataset\.(label|missing|drop|categories)=")


def in_options(text: str) -> str:
    """A text with the options of `fedblade flower sums` in the place of settings."""
    return _SETTING.sub(r"--\1 ", text)


@contextmanager
def as_options(advice: str = "") -> Iterator[None]:
    """Let errors name options in the place of settings, followed by `advice` if there are any."""
    try:
        yield
    except Misconfigured as error:
        text = in_options(str(error))
        if text == str(error):
            raise
        raise type(error)(text + advice) from error
