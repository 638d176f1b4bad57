"""The command line `fedblade`. Commands import torch when they run, so that --help is fast."""

from fedblade.cli._main import app, main

__all__ = ["app", "main"]
