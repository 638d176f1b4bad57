"""The pages of the site that are made from the code: settings, commands, and the parts of each kind, notebooks."""

from functools import cache

from docs.site.commands import command_page
from docs.site.examples import example_page
from docs.site.notebooks import notebook_pages
from docs.site.parts import KINDS, part_page
from docs.site.settings import settings_page

_FIRST = "---\nsearch: {boost: 4}\n---\n"
"""Whoever searches for a setting or a command finds its page before the pages that use it."""


@cache
def generated_pages() -> dict[str, str]:
    """The text of each page by its place in the site."""
    return {
        "reference-settings.md": _FIRST + settings_page(),
        "reference-commands.md": _FIRST + command_page(),
        "reference-examples.md": example_page(),
        **notebook_pages(),
        **{f"reference-{kind}.md": part_page(kind) for kind in KINDS},
    }
