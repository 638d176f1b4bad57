"""`fedblade config`: a complete, commented configuration to start from."""

import typer

from fedblade.cli import _options as opt


def config(source: opt.Source = None, assignments: opt.Assignments = None, where: opt.Where = None) -> None:
    """Print a complete configuration file with a comment for every key. `fedblade run FILE.toml` runs it.

    Without a preset or file, the settings are those of the preset quickstart.

    A preset that is a grid needs --where.
    """
    from fedblade.config.commented import commented_toml
    from fedblade.runs import load_config

    typer.echo(commented_toml(*load_config(source, opt.overrides(assignments), where or ())), nl=False)
