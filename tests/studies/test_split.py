"""`fedblade partition` for one cell of a grid, and side by side with the splits that go by the same name."""

import pytest

from fedblade.core.errors import Misconfigured
from fedblade.runs import load_config, split_clients

LACKS = "A cohort lacks a class that makes up less than 1 % of the cohort's samples"


def test_the_split_of_one_cell(tiny, command):
    where = ("level=1", "method=FedAvg")
    out = command("partition", tiny("tn-t1"), *(word for each in where for word in ("--where", each))).stdout
    config, _ = load_config(tiny("tn-t1"), {}, where)
    sizes = split_clients(config, config.dataset.make()).train.sizes()
    assert f"6 clients, {sizes.min()} to {sizes.max()} samples each" in out
    assert ", 1 draw\n" in out
    assert LACKS in " ".join(out.split())


def test_a_comparison_has_unequal_sizes_and_says_what_lacking_means(command):
    out = command("partition", "--set", "alpha=0.5", "--compare").stdout
    assert max(map(len, out.splitlines())) <= 80
    assert LACKS in " ".join(out.split())
    rows = [f"dirichlet{row}".splitlines() for row in out.split("\ndirichlet")[1:]]
    equal, unequal = rows[-2:]
    assert [line.split()[0] for line in unequal[:3]] == ["dirichlet_clients", "sizes=lognormal", "deal=samples"]
    config, _ = load_config(
        None, {"partition": "dirichlet_clients", "alpha": 0.5, "sizes": "lognormal", "deal": "samples"}
    )
    sizes = split_clients(config, config.dataset.make()).train.sizes()
    assert unequal[0].split()[1].split("/")[::2] == [str(sizes.min()), str(sizes.max())]
    assert equal[0].split()[1] == "67/67/68"


def test_a_comparison_refuses_knobs_that_it_would_ignore(command):
    for given, knob in (
        (["min_size=30"], "min_size"),
        (["partition=dirichlet_clients", "partition.sizes=lognormal"], "sizes"),
    ):
        settings = [word for each in given for word in ("--set", each)]
        with pytest.raises(Misconfigured, match=f"--compare would ignore --set {given[-1]}.* Leave {knob} out"):
            command("partition", *settings, "--compare")
