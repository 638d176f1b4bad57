"""The runs of a paper's figure measure what the figure shows."""

import re

from fedblade.config.run_config import RunConfig
from fedblade.figures import paper_ids
from fedblade.figures._specs import Number, number_spec, paper_figure
from support.all_presets import GRIDS, configs
from support.for_every import for_every

DRAWN = [name for name in GRIDS if name in paper_ids()]


def measures(config: RunConfig, wanted: Number) -> bool:
    """Whether a run with this configuration has the field, or the one to take otherwise."""
    if wanted.metric:
        found = wanted.metric in config.evaluation.metrics
    elif wanted.key == "label_counts":
        found = config.partition.name != "drawn"
    else:
        assert "evaluation.protocol" in wanted.needs
        found = config.evaluation.protocol in re.findall(r'"(\w+)"', wanted.needs)
    return found or (wanted.otherwise != "" and measures(config, number_spec(wanted.otherwise)))


def test_every_figure_has_a_preset_of_its_id():
    assert sorted(DRAWN) == sorted(paper_ids())


@for_every(DRAWN)
def test_every_cell_measures_what_its_figure_shows(name):
    wanted = [field for part in paper_figure(name) for field in part.required]
    missing = {
        (config.method.name, field.key) for config in configs(name) for field in wanted if not measures(config, field)
    }
    assert missing == set()
