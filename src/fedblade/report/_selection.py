"""Which groups the charts of a page draw one by one: all of a few, the best of many."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from fedblade.charts import MOST_DRAWN, Chart, crowd_name, with_crowd, without_many_bands
from fedblade.report._blocks import trusted
from fedblade.report._svg import swatch
from fedblade.results import ComparisonRow, Group

_BEST = 7
"""How many of many groups are drawn; each has a colour of its own."""


@dataclass(frozen=True)
class Selection:
    """The groups of a page, and the indices of those that its charts draw, in the order of the legend."""

    groups: Sequence[Group]
    drawn: tuple[int, ...]

    @property
    def many(self) -> bool:
        """Whether there are more groups than the charts draw."""
        return len(self.drawn) < len(self.groups)

    @property
    def drawn_groups(self) -> list[Group]:
        """The groups that are drawn."""
        return [self.groups[index] for index in self.drawn]

    @property
    def legend(self) -> list[tuple[str, Markup]]:
        """The names of the lines, each with a sample of the line; of many groups the last one is the band."""
        names = [(group.label, False) for group in self.drawn_groups]
        names += [(crowd_name(len(self.groups)), True)] if self.many else []
        return [(name, trusted(swatch(at, crowd=crowd))) for at, (name, crowd) in enumerate(names)]

    @property
    def sentence(self) -> str:
        """Which groups are drawn, where not all are."""
        if not self.many:
            return ""
        return (
            f"There are {len(self.groups)} groups of runs. Charts draw the {len(self.drawn)} with the highest mean "
            "accuracy. The grey band has the middle 80 % of all groups at each place, and the dotted line in it is "
            "their median. Tables scroll, and list all groups."
        )

    def place(self, index: int) -> int | None:
        """The place of a group in the legend, None where the group is not drawn."""
        return self.drawn.index(index) if index in self.drawn else None

    def of(self, charts: Sequence[Chart | None]) -> list[Chart]:
        """The charts as the page shows them: of many groups with the best ones and a band."""
        reduced = [with_crowd(chart, self.drawn) for chart in charts] if self.many else charts
        return [chart for chart in map(without_many_bands, reduced) if chart is not None]


def select(groups: Sequence[Group], rows: Sequence[ComparisonRow]) -> Selection:
    """All groups in their order where charts have room for all, otherwise the best ones, best first."""
    if len(groups) <= MOST_DRAWN:
        return Selection(groups, tuple(range(len(groups))))
    return Selection(groups, tuple(best_first(rows)[:_BEST]))


def best_first(rows: Sequence[ComparisonRow]) -> list[int]:
    """The indices of the rows from the highest mean accuracy to the lowest; rows without one come last."""
    return sorted(range(len(rows)), key=lambda at: (rows[at].ranked_mean is None, -(rows[at].ranked_mean or 0.0), at))
