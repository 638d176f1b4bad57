"""The two faces of a card: text that fits a terminal, and Markdown."""

import re
import tomllib
from functools import cache
from itertools import pairwise

from fedblade.cards import make_card, plain_text
from fedblade.cards._knobs import Knob
from fedblade.cards._markdown import index, page
from fedblade.cards._text import _knobs
from fedblade.config.run_config import knob_tables
from fedblade.core.registry import methods
from support.for_every import for_every

NAMES = [*methods.names(), "fedavg+feddecorr", "fedetf-ft"]
HEADINGS = (
    *("Knobs", "Search space", "Terms", "Training", "What travels"),
    *("State", "Personal models", "Secure sums", "Engines"),
)

shown = cache(make_card)


@for_every(NAMES)
def test_text_fits_a_terminal_and_has_every_section(name):
    text = plain_text(shown(name))
    assert max(map(len, text.splitlines())) <= 80
    assert text.startswith(name)
    sections = [block.partition("\n")[0] for block in text.split("\n\n")][-len(HEADINGS) :]
    assert all(section.startswith(heading) for section, heading in zip(sections, HEADINGS, strict=True))
    assert re.search(r"first round: [\d,]+ bytes down, [\d,]+ bytes up", text)
    plain = " ".join(text.split())
    assert "deployed: a client sends its number of samples per class and the shape of a sample once" in plain
    assert "samples, labels and the client's state never leave the client" in plain
    assert ("then the sums above, the totals" in plain) == ("nothing is sent" not in plain)
    assert "\n\nDeployed, a client sends its number of samples per class" in page(shown(name))


@for_every(NAMES)
def test_knobs_can_be_pasted_into_a_configuration(name):
    knobs = plain_text(shown(name)).partition("\nKnobs")[2].partition("\n")[2].partition("\n\n")[0]
    assert tomllib.loads("\n".join(line.strip() for line in knobs.splitlines())) == knob_tables(name)


def test_many_values_of_presets_become_a_comment_above_the_knob():
    papers = {"FedDecorr": (0.1, 0.2), "FedETF": (0.3,), "FedDr+": tuple(0.9 + i / 1000 for i in range(12))}
    lines = _knobs([Knob("beta", 0.9, papers), Knob("kind", "a", {"FedGELA": ("b",)})])
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("  # FedDecorr 0.1 or 0.2, FedETF 0.3, FedDr+ 0.9 or ")
    assert lines[-2:] == ["  beta = 0.9", '  kind = "a"  # FedGELA "b"']
    assert tomllib.loads("\n".join(lines)) == {"beta": 0.9, "kind": "a"}


@for_every(NAMES)
def test_tables_of_a_page_are_well_formed(name):
    text = page(shown(name))
    assert text.startswith(f"# {name}\n")
    widths = [len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0 for line in text.splitlines()]
    for before, width in pairwise(widths):
        assert not before or not width or before == width
    assert text.count("```") % 2 == 0


@for_every(NAMES)
def test_a_page_has_type_default_and_meaning_of_every_knob(name):
    knobs = page(shown(name)).partition("\n## Knobs\n")[2].partition("\n## ")[0]
    rows = [re.split(r"(?<!\\)\|", line) for line in knobs.splitlines() if line.startswith("| `")]
    assert [row[1].strip(" `") for row in rows] == [knob.key for knob in shown(name).knobs]
    assert all(row[2].strip() and row[3].strip() and len(row[5].strip()) > 10 for row in rows)


def test_the_index_says_whose_model_what_payload_and_which_state():
    lines = index([make_card(name) for name in methods.names()]).splitlines()
    rows = {line.split("](")[0].removeprefix("| ["): line for line in lines if line.startswith("| [")}
    assert list(rows) == methods.names()
    assert rows["fedavg"].endswith("| global | – | – |")
    assert rows["scaffold"].endswith("| global | down c 90,600; up c 90,600 | server: c; client: c |")
    assert "[arXiv:1602.05629](https://arxiv.org/abs/1602.05629)" in rows["fedavg"]
