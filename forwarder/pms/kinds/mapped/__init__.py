"""Kinds that are mappings: a YAML file each, named as the kind. docs/guides/map-a-pms.md explains them; nothing else is here."""
