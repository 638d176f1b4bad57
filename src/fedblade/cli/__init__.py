"""The command line `fedblade`. Modules that need torch are imported inside the commands, so that --help is fast."""

from fedblade.cli._main import app, main

__all__ = ["app", "main"]
