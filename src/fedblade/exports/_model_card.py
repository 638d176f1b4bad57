"""The model card of a run: what a person should know before using the model, as Markdown with a YAML head."""

import json
from collections.abc import Sequence

from fedblade._version import __version__
from fedblade.config.literals import literal
from fedblade.core.nested import dotted
from fedblade.exports._description import shareable, without_folders
from fedblade.exports._network import TrainedNetwork
from fedblade.exports._payload_table import payload_section
from fedblade.exports._spread import spread_over_clients, spread_over_seeds
from fedblade.results import RunRecord, markdown_texts, over_last_rounds, percent

_MOST_NAMES = 100
_TASKS = {1: "tabular-classification", 3: "image-classification"}
"""The hub's name of the task, by the number of axes of an input."""
_TO_ADD = """\
# license: choose one before you publish, such as apache-2.0
# datasets: name them if they are on the hub"""
_LOAD = """\
With PyTorch alone. The program takes inputs as the data set holds them and gives logits:

```python
import torch

program = torch.export.load("model.pt2").module()
logits = program(inputs)  # inputs: {shape}, {dtype}
probabilities = torch.softmax(logits, dim=1)
```

`preprocessor_config.json` describes the inputs, `config.json` the classes and every setting of the run.
`model.safetensors` has the weights by the names of the layers, for code that builds the module itself. That module
takes normalised inputs."""


def model_card(network: TrainedNetwork, run: RunRecord) -> str:
    """The card. The licence is left to whoever publishes the model."""
    method, dataset, model = (without_folders(run.part(kind)) for kind in ("method", "dataset", "model"))
    shape = ", ".join(map(str, ("batch", *network.facts["input_shape"])))
    versions = run.summary.get("versions", {})
    sections = {
        "How to load it": _LOAD.format(shape=f"[{shape}]", dtype=network.dtype_name),
        "Inputs and classes": _inputs(network),
        "Data": _data(run, dataset),
        "Training": _training(run),
        "Accuracy": _accuracy(run),
        "What left the clients": payload_section(run),
        "Limits": _limits(run),
        "How it was made": f"With fedblade {versions.get('fedblade', __version__)}, torch "
        f"{versions.get('torch', '?')}, seed {run.seed}. The same settings and data on the same "
        f"kind of machine give the same model.",
    }
    title = f"# {method} on {dataset}\n\nThe model `{model}`, trained with federated learning by the method `{method}`."
    body = [title, *(f"## {heading}\n\n{text}" for heading, text in sections.items())]
    return _front_matter(network, run) + "\n" + "\n\n".join(body) + "\n"


def _front_matter(network: TrainedNetwork, run: RunRecord) -> str:
    """The head of the card for the hub. Values are JSON, which is YAML too."""
    method, dataset = without_folders(run.part("method")), without_folders(run.part("dataset"))
    task = {"type": _task(network)}
    lines = {
        "library_name": "pytorch",
        "pipeline_tag": task["type"],
        "tags": list(dict.fromkeys(("federated-learning", "label-skew", "fedblade", method))),
        "metrics": ["accuracy"],
    }
    text = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in lines.items()]
    if run.final_accuracy is not None:
        value = {"type": "accuracy", "value": round(run.final_accuracy / 100, 4), "name": "Test accuracy"}
        result = {"task": task, "dataset": {"name": dataset, "type": dataset}, "metrics": [value]}
        index = [{"name": f"{method} on {dataset}", "results": [result]}]
        text.append(f"model-index: {json.dumps(index, ensure_ascii=False)}")
    return "\n".join(["---", _TO_ADD, *text, "---", ""])


def _task(network: TrainedNetwork) -> str:
    """The hub's name of the task. Rows of whole numbers may be token ids, so that nothing is claimed of them."""
    axes, counted = len(network.facts["input_shape"]), not network.input_dtype.is_floating_point
    return "other" if axes == 1 and counted else _TASKS.get(axes, "other")


def _inputs(network: TrainedNetwork) -> str:
    facts, names = network.facts, network.class_names
    shown = ", ".join(f"`{name}`" for name in names[:_MOST_NAMES])
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return (
        f"Inputs have the shape {facts['input_shape']} and are normalised inside of the program: "
        f"(inputs / {facts['unit']:g} − mean) / std, with mean {_short(facts['mean'])} and std "
        f"{_short(facts['std'])}.\n\n"
        f"{len(names)} classes, in the order of the logits: {shown}{more}."
    )


def _data(run: RunRecord, dataset: str) -> str:
    skew = run.hardness
    lines = [f"Data set `{dataset}`{f' ({run.pictures})' if run.pictures else ''}."]
    lines.append(f"The clients' samples were divided by the partition `{run.part('partition')}`.")
    if skew is not None:
        lines += [skew.sentence(), markdown_texts(("label skew", "value"), skew.facts())]
    return "\n\n".join(lines)


def _training(run: RunRecord) -> str:
    config = shareable(run.config)
    federation = config.get("federation", {})
    text = (
        f"{run.rounds_done} rounds; {federation.get('clients_per_round', '?')} of {federation.get('num_clients', '?')} "
        f"clients took part in a round."
    )
    sections = ("method", "model", "local", "optimizer", "partition")
    rows = [
        (f"`{key}`", f"`{literal(value)}`")
        for key, value in dotted({name: config[name] for name in sections if name in config}).items()
        if value != "none"
    ]
    return f"{text}\n\n{markdown_texts(('setting', 'value'), rows)}"


def _accuracy(run: RunRecord) -> str:
    rounds = over_last_rounds([(run.rounds_evaluated, run.rounds_done)])
    measured = (
        "samples held back from the clients" if run.summary.get("evaluated_on") == "validation" else "the test set"
    )
    rows = [
        ("final model", f"{percent(run.final_accuracy)} %"),
        (f"mean of {rounds}", f"{percent(run.last10_accuracy)} %"),
    ]
    parts = [f"Measured on {measured}.", markdown_texts((f"accuracy of this model, seed {run.seed}", "value"), rows)]
    seeds, clients = spread_over_seeds(run), spread_over_clients(run)
    parts.append(
        f"Over seeds: {seeds}." if seeds else "One seed: how much the accuracy varies over seeds is not known."
    )
    parts += [f"Over clients: {clients}."] if clients else []
    parts += ["The accuracy was claimed by the nodes; nobody has checked it."] if run.claimed else []
    return "\n\n".join(parts)


def _limits(run: RunRecord) -> str:
    """What the run itself says against the model, and what no accuracy says."""
    lines = [f"A warning of the run: {flag}" for flag in run.flags]
    lines += [
        "The accuracy is that of test samples like those of training. It says nothing about other sources of data.",
        "Logits are not calibrated unless the method calibrates them: a high probability is no proof.",
        "Clients sent no samples, but sums can tell something of the samples. No privacy guarantee is claimed here.",
        "For uses that touch people, measure the accuracy of each group first. The spread over clients is a start.",
    ]
    return "\n".join(f"- {line}" for line in lines)


def _short(values: Sequence[float]) -> str:
    return f"[{', '.join(f'{value:g}' for value in values)}]"
