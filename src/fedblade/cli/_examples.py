"""What `--help` says below the options: what the arguments are, and commands to copy."""

from collections.abc import Callable
from typing import Any

import typer

_EXAMPLES = {
    "run": (
        "fedblade run --set method=fedprox --set mu=0.1 --set rounds=20",
        "fedblade run my.toml --out runs/first --resume",
    ),
    "compare": (
        "fedblade compare --methods fedavg,fedprox,fedblade --seeds 1,2,3",
        "fedblade compare --methods fedavg,mine.py:relative --set alpha=0.05",
    ),
    "sweep": (
        "fedblade sweep --set method=fedprox --tune",
        "fedblade sweep --set method=moon --grid lr=0.01,0.1 --grid mu=1,5 --validation",
    ),
    "reproduce": ("fedblade reproduce fb-t1 --where dataset=CIFAR-10 --dry-run",),
    "config": ("fedblade config --set method=moon > my.toml",),
    "list": ("fedblade list methods", "fedblade list settings rate"),
    "show": ("fedblade show fedprox", "fedblade show fedprox+feddecorr"),
    "partition": ("fedblade partition --set alpha=0.05 --plot split.svg", "fedblade partition --compare"),
    "data": ("fedblade data", "fedblade data cifar10 --download"),
    "report": ("fedblade report runs", "fedblade report runs/a runs/b --out both.html --figures figures"),
    "watch": ("fedblade watch runs/first", "fedblade watch runs --web"),
    "bench": ("fedblade bench", "fedblade bench --json"),
    "export": ("fedblade export runs/first --format onnx --out model.onnx",),
    "predict": (
        "fedblade predict runs/first photo.png",
        "fedblade predict runs/first digits/*.png",
    ),
    "doctor": ("fedblade doctor",),
    "flower sums": ("fedblade flower sums north.csv --client 0 --seed 0 --label outcome --out north.json",),
    "flower agree": ("fedblade flower agree app north.json south.json west.json",),
}


def epilog(name: str, command: Callable[..., Any]) -> str | None:
    """The lines below the options of a command; typer shows a paragraph as a line."""
    arguments = [f"{key}: {text}" for key, text in _argument_helps(command)]
    examples = [f"  {line}" for line in _EXAMPLES.get(name, ())]
    lines = [*arguments, *(["Examples:", *examples] if examples else [])]
    return "\n\n".join(line.replace("[", "\\[") for line in lines) or None


def _argument_helps(command: Callable[..., Any]) -> list[tuple[str, str]]:
    """Names and explanations of arguments, which recent versions of click leave out of the help."""
    return [
        (str(info.metavar or key.upper()), info.help)
        for key, annotation in command.__annotations__.items()
        for info in getattr(annotation, "__metadata__", ())
        if isinstance(info, typer.models.ArgumentInfo) and info.help
    ]
