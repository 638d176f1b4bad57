"""Flower's database configures the logging of the whole process; tests that open one put it back."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def logging_kept() -> Iterator[None]:
    """Keep the root logger's level and handlers, and which loggers are disabled."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    disabled = {name for name in logging.Logger.manager.loggerDict if logging.getLogger(name).disabled}
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
        for name in logging.Logger.manager.loggerDict:
            logging.getLogger(name).disabled = name in disabled
