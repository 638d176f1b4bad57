"""Cards of methods: what `fedblade show` prints and the method pages of the documentation."""

from fedblade.cards._card import card
from fedblade.cards._text import plain_text

__all__ = ["card", "plain_text"]
