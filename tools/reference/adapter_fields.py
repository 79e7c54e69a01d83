"""docs/reference/adapter-fields.md: what each kind of PMS makes of each field of a request."""

from collections.abc import Iterator
from typing import Final

from forwarder.pms.fields import SPECIFIED, Fate, SentAs, becomes
from forwarder.pms.registry import KINDS
from tools.reference.source import HEAD, table

_ABOUT: Final = """# What becomes of each field

No field of a request is dropped silently. If the PMS has no field for a value, it goes into the notes or comments in plain words,
such as `Infants: 1`. For a field that is not sent at all the table gives the reason, and the answer to a caller who sends it has
an entry in `warnings`.

The tables are those of accounts without options. They are declared with the code of each kind, and a test puts a value into each
field in turn and looks for it in the requests that go out. `forwarder adapters fields KIND --options-file …` shows the table of an
account with options, and what a [mapping](../guides/map-a-pms.md) makes of each field.

"""
_MOST_NAMED: Final = 12


def adapter_fields_page() -> str:
    """The page."""
    return HEAD + _ABOUT + "\n".join(part for kind in sorted(KINDS) for part in _section(kind))


def _section(kind: str) -> Iterator[str]:
    declared = KINDS[kind].fields
    yield f"## {kind}\n"
    if declared.notes:
        yield f"Notes and comments in plain words go into `{declared.notes}`.\n"
    same = [name for name in SPECIFIED if _is_the_same(name, declared.fates[name])]
    if len(same) > _MOST_NAMED:
        yield f"{'Every field' if len(same) == len(SPECIFIED) else 'Every other field'} is sent under its own name.\n"
    elif same:
        yield f"Sent under their own names: {', '.join(f'`{name}`' for name in same)}.\n"
    rows = [[f"`{name}`", becomes(declared.fates[name], declared.notes)] for name in SPECIFIED if name not in same]
    if rows:
        yield table(["field", "becomes"], rows)


def _is_the_same(name: str, fate: Fate) -> bool:
    return fate == SentAs((name,))
