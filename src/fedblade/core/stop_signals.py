"""The signals that stop a command."""

import signal

HANGUP: int | None = getattr(signal, "SIGHUP", None)
"""The terminal was closed. Windows has no such signal."""
STOP_SIGNALS: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM, *(() if HANGUP is None else (HANGUP,)))
"""All that end a command so that its work can go on later."""
