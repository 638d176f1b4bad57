"""Values and texts from another machine, made short and harmless before a message repeats them."""

SHOWN_CHARACTERS = 80
"""Characters of a text value that a message repeats."""
REASON_CHARACTERS = 500
"""Characters of a reason that is stored or shown."""
_SHOWN_ITEMS = 3
_LARGEST_NUMBER = 10**30


def short_repr(value: object) -> str:
    """A value as a message shows it. The value may be of any size or depth, so it is cut before it is written out."""
    if isinstance(value, list):
        more = ", …" if len(value) > _SHOWN_ITEMS else ""
        return f"[{', '.join(_item_repr(item) for item in value[:_SHOWN_ITEMS])}{more}]"
    return _item_repr(value)


def is_number(value: object, most: float) -> bool:
    """Whether a value is a number between -most and most; JSON also has NaN, infinity and integers of any length."""
    return type(value) in (int, float) and -most <= value <= most  # type: ignore[operator]


def printable(text: str, most: int) -> str:
    """The first `most` characters of a text; characters that would act on a terminal are escaped."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text[:most])


def _item_repr(value: object) -> str:
    match value:
        case str():
            return repr(value[:SHOWN_CHARACTERS])
        case None | bool() | float():
            return repr(value)
        case int() if -_LARGEST_NUMBER <= value <= _LARGEST_NUMBER:
            return repr(value)
        case _:
            return f"a value of type {type(value).__name__}"
