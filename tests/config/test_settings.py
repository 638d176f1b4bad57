"""Settings as they are described: every key has a meaning."""

from fedblade.config.schema import FIXED, NAMED, General


def test_every_key_of_the_configuration_has_a_meaning():
    """A key's meaning is the sentence below it in `config/schema.py`."""
    sections = {"general": General, **NAMED, **FIXED}
    silent = [
        f"{section}.{key}"
        for section, model in sections.items()
        for key, field in model.model_fields.items()
        if not (field.description or "").endswith(".")
    ]
    assert silent == []
