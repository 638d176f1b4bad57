"""Cards of methods: what `fedblade show` prints and the method pages of the documentation."""

from fedblade.cards._card import make_card
from fedblade.cards._markdown import method_pages
from fedblade.cards._text import plain_text

__all__ = ["make_card", "method_pages", "plain_text"]
