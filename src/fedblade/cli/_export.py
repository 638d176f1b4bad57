"""`fedblade export`: a trained model in a format that other programs load."""

from pathlib import Path
from typing import Annotated

import typer

from fedblade.cli import _options as opt


def export(
    folder: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The folder of one finished run.")],
    form: Annotated[str, typer.Option("--format", metavar="FORMAT", help="onnx, torch, safetensors or hub.")] = "onnx",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="PATH",
            help="File, or folder of hub; named like the run, in the working directory, if left out.",
        ),
    ] = None,
) -> None:
    """Write the trained model for programs without fedblade. The last line printed is its path.

    onnx is for ONNX Runtime, torch is a program of torch.export, safetensors has the tensors alone.

    hub writes a folder with a model card; nothing is sent anywhere.
    """
    from fedblade.runs import load

    typer.echo(str(load(opt.one_run(folder)).export(out, form)))
