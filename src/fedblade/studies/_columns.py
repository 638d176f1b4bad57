"""Which columns a table of lines shows, and in words what it leaves out."""

from collections.abc import Collection, Mapping, Sequence

Facts = Mapping[str, str]
"""A line column by column."""
_OWNER, _FOLLOWER = "dataset", "model"


def differing(facts: Sequence[Facts]) -> list[str]:
    """Columns in which lines differ, and the method in any case; without the model where the data set decides it."""
    keys = dict.fromkeys(key for table in facts for key in table)
    varying = [key for key in keys if len({table.get(key, "") for table in facts}) > 1 or key == "method"]
    return [key for key in varying if key != _FOLLOWER or not model_by_data(facts)]


def model_by_data(facts: Sequence[Facts]) -> str:
    """The model of each data set in words, where lines have several of both and the data set decides; else empty."""
    pairs = dict.fromkeys((table.get(_FOLLOWER, ""), table.get(_OWNER, "")) for table in facts)
    models, data = ({pair[place] for pair in pairs} for place in (0, 1))
    if len(models) == 1 or len(data) < len(pairs):
        return ""
    return f"{_FOLLOWER} = " + ", ".join(f"{model} for {name}" for model, name in pairs)


def in_common(facts: Sequence[Facts], told: Collection[str]) -> str:
    """What all lines have in common, in words, besides columns that are told elsewhere."""
    first = {key: text for key, text in facts[0].items() if text and key not in told}
    shared = [key for key in first if all(table.get(key) == first[key] for table in facts)]
    return ", ".join(f"{key} = {first[key]}" for key in shared)
