"""`fedblade show`: a method's card."""

import json
from typing import Annotated

import typer


def show(
    method: Annotated[str, typer.Argument(help="A method, such as fedblade or fedprox+feddecorr.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Show a method: formula, knobs with defaults, training, what travels, state, personal models, engines."""
    from dataclasses import asdict

    from fedblade.cards import make_card, plain_text

    card = make_card(method)
    typer.echo(json.dumps(asdict(card), indent=2, ensure_ascii=False) if as_json else plain_text(card))
