"""`fedblade show`: a method's card."""

from typing import Annotated

import typer


def show(method: Annotated[str, typer.Argument(help="A method, such as fedblade or fedprox+feddecorr.")]) -> None:
    """Show a method: formula, knobs with defaults, what travels, state, engines."""
    from fedblade.experiment._card import card

    typer.echo(card(method))
