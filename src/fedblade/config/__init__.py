"""The configuration of a run: schema, settings, overrides and checks. Modules without underscore are public."""
