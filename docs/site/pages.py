"""The pages of the site that are made from the code: settings, commands, and the parts of each kind, notebooks."""

from functools import cache

from docs.site.commands import command_page
from docs.site.examples import example_page
from docs.site.notebooks import notebook_pages
from docs.site.parts import KINDS, part_page
from docs.site.settings import settings_page


@cache
def generated_pages() -> dict[str, str]:
    """The text of each page by its place in the site."""
    return {
        "reference-settings.md": settings_page(),
        "reference-commands.md": command_page(),
        "reference-examples.md": example_page(),
        **notebook_pages(),
        **{f"reference-{kind}.md": part_page(kind) for kind in KINDS},
    }
