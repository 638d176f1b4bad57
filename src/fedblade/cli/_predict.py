"""`fedblade predict`: the labels that a trained model gives to pictures, arrays and tables."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedblade.cli import _options as opt

if TYPE_CHECKING:
    from fedblade.data import Expected
    from fedblade.runs import TrainedModel

_BATCH = 256


def predict(
    folder: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The folder of one finished run.")],
    inputs: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Pictures, .npy or .npz arrays, tables, or folders of them.")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a list of objects, with the probabilities of all classes.")
    ] = False,
) -> None:
    """Print the label and its probability for each picture, or for each row of an array or a table.

    Inputs must be like those of training in size, channels and scale.
    """
    from fedblade.results import Table, text_table
    from fedblade.runs import load

    rows = list(_predictions(load(opt.one_run(folder)), inputs))
    if as_json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    texts = [(row["file"], row["label"], f"{100 * row['probability']:.1f} %") for row in rows]
    typer.echo(text_table(Table.of_texts(("file", "label", "probability"), texts, ("probability",))))


def _predictions(model: "TrainedModel", paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """A row for each input, in the order of the files; a part of a file at a time goes through the model."""
    from fedblade.data import INPUT_ENDINGS, TABLE_ENDINGS, Expected, given_files
    from fedblade.exports import class_names, require_global_model

    run = model.read_record()
    require_global_model(run)
    expected, labels = Expected.of(model.facts, run.config.get("dataset", {})), class_names(model.facts)
    for file in given_files(paths, TABLE_ENDINGS if model.facts.get("encoding") else INPUT_ENDINGS):
        for name, chance in _probabilities(model, file, expected):
            best = max(range(len(chance)), key=chance.__getitem__)
            by_class = dict(zip(labels, chance, strict=True))
            yield {"file": name, "label": labels[best], "probability": chance[best], "probabilities": by_class}


def _probabilities(model: "TrainedModel", file: Path, expected: "Expected") -> Iterator[tuple[str, list[float]]]:
    """A name and the probabilities of all classes for each input of a file; an error names the file."""
    from fedblade.core.errors import Misconfigured
    from fedblade.data import read_given

    if model.facts.get("encoding"):
        chances = model.probabilities(file).tolist()  # the rows of a table are encoded as those of training
        yield from ((f"{file}[{row}]", chance) for row, chance in enumerate(chances))
        return
    inputs, names = read_given(file, expected)
    for start in range(0, len(inputs), _BATCH):
        try:
            chances = model.probabilities(inputs[start : start + _BATCH]).tolist()
        except Misconfigured as error:
            raise Misconfigured(f"'{file}': {error}") from error
        yield from zip(names[start:], chances, strict=False)
