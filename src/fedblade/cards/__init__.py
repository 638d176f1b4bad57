"""Cards of methods: what `fedblade show` prints and the method pages of the documentation."""

from fedblade.cards._card import Card, make_card
from fedblade.cards._markdown import method_pages
from fedblade.cards._text import plain_text

__all__ = ["Card", "make_card", "method_pages", "plain_text"]
