"""`fedblade predict`: the labels that a trained model gives to pictures, arrays and tables."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fedblade.data import Expected
    from fedblade.runs import TrainedModel

_BATCH = 256


def predict(
    folder: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The folder of one finished run.")],
    inputs: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Pictures, .npy or .npz arrays, folders of them, or tables.")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a list of objects, with the probabilities of all classes.")
    ] = False,
) -> None:
    """Print the label and its probability for each picture, or for each row of an array or table.

    Inputs must be like those of training in size, channels and scale; a table (.csv, .parquet) needs its columns.

    Example: fedblade predict runs/mine digits/*.png
    """
    from fedblade.cli._one_run import one_run
    from fedblade.results import Table, text_table
    from fedblade.runs import load

    rows = list(_predictions(load(one_run(folder)), inputs))
    if as_json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    texts = [(row["file"], row["label"], f"{100 * row['probability']:.1f} %") for row in rows]
    typer.echo(text_table(Table.of_texts(("file", "label", "probability"), texts, ("probability",))))


def _predictions(model: "TrainedModel", paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """A row for each input, in the order of the files; a part of a file at a time goes through the model."""
    from fedblade.data import Expected
    from fedblade.exports import class_names, require_global_model

    run = model.read_record()
    require_global_model(run)
    labels = class_names(model.facts)
    for name, chance in _chances(model, paths, Expected.of(model.facts, run.config.get("dataset", {}))):
        best = max(range(len(chance)), key=chance.__getitem__)
        by_class = dict(zip(labels, chance, strict=True))
        yield {"file": name, "label": labels[best], "probability": chance[best], "probabilities": by_class}


def _chances(model: "TrainedModel", paths: Sequence[Path], expected: "Expected") -> Iterator[tuple[str, list[float]]]:
    """The name and the probabilities of all classes for each input."""
    from fedblade.data import given_files, read_given

    for file in given_files(paths):
        if model.facts.get("encoding") is not None:
            rows = _probabilities(model, file, file)
            yield from ((f"{file}[{row}]", chance) for row, chance in enumerate(rows))
            continue
        inputs, names = read_given(file, expected)
        for start in range(0, len(inputs), _BATCH):
            chances = _probabilities(model, inputs[start : start + _BATCH], file)
            yield from zip(names[start:], chances, strict=False)


def _probabilities(model: "TrainedModel", inputs: Any, file: Path) -> list[list[float]]:
    """The probabilities of all classes; a refused input is named with its file."""
    from fedblade.core.errors import Misconfigured

    try:
        chances: list[list[float]] = model.probabilities(inputs).tolist()
    except Misconfigured as error:
        raise Misconfigured(f"'{file}': {error}") from error
    return chances
