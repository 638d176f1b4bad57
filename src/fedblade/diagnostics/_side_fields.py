"""Fields that exist twice: for the classes of which a client has samples, and for its other classes."""

from dataclasses import replace

from fedblade.core.fields import Field

OBSERVED, EXISTING = ("observed", "unobserved"), ("existing", "missing")
"""What papers call the classes that a client has and those that it lacks."""


def both_sides(field: Field, variants: tuple[str, str]) -> tuple[Field, Field]:
    """The field for the classes a client has and for those it lacks; its `name` has `{}` in place of the variant."""
    has, lacks = variants
    return (
        replace(field, name=field.name.format(has), label=f"{field.label}: classes a client has", variant=has),
        replace(
            field,
            name=field.name.format(lacks),
            label=f"{field.label}: classes a client lacks",
            reading=f"{field.reading} Here for the classes of which the client has no sample.",
            variant=lacks,
        ),
    )
