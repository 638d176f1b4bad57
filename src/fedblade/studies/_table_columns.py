"""Which columns a table shows, and in words what the table leaves out."""

from collections.abc import Collection, Mapping, Sequence

Facts = Mapping[str, str]
"""The text of a table's line, column by column."""


def differing_columns(lines: Sequence[Facts]) -> list[str]:
    """The columns in which lines differ, and the method always; the model only if the data set does not decide it."""
    columns = dict.fromkeys(column for facts in lines for column in facts)
    differing = [
        column for column in columns if column == "method" or len({facts.get(column, "") for facts in lines}) > 1
    ]
    return [column for column in differing if column != "model" or not model_of_dataset(lines)]


def model_of_dataset(lines: Sequence[Facts]) -> str:
    """The model of every data set in words, where lines have several of both and the data set decides; else empty."""
    pairs = dict.fromkeys((facts.get("model", ""), facts.get("dataset", "")) for facts in lines)
    models, datasets = {model for model, _ in pairs}, {dataset for _, dataset in pairs}
    if len(models) == 1 or len(datasets) < len(pairs):
        return ""
    return "model = " + ", ".join(f"{model} for {dataset}" for model, dataset in pairs)


def common_facts(lines: Sequence[Facts], left_out: Collection[str]) -> str:
    """What all lines have in common, in words, without the columns in `left_out`."""
    first = {column: text for column, text in lines[0].items() if text and column not in left_out}
    common = [column for column in first if all(facts.get(column) == first[column] for facts in lines)]
    return ", ".join(f"{column} = {first[column]}" for column in common)
