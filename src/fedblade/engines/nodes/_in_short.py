"""What a node says, in the few words that a message can repeat."""

SHOWN = 80
"""Characters of a text that are repeated."""
_LISTED = 3
_LARGEST = 10**30


def in_short(given: object) -> str:
    """What a node says, cut short before it is written out, as it may be of any size or depth."""
    if isinstance(given, list):
        more = ", …" if len(given) > _LISTED else ""
        return f"[{', '.join(_single(each) for each in given[:_LISTED])}{more}]"
    return _single(given)


def printable(text: str, most: int) -> str:
    """A text of a node's, cut to `most` characters and without those that would act on a terminal."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text[:most])


def _single(given: object) -> str:
    match given:
        case str():
            return repr(given[:SHOWN])
        case None | bool() | float():
            return repr(given)
        case int() if -_LARGEST <= given <= _LARGEST:
            return repr(given)
        case _:
            return f"a value of type {type(given).__name__}"
