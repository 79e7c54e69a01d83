"""What commands print comes from anywhere: no terminal is to obey it."""

import json

from forwarder.operate.output import json_line
from forwarder.process.printable import printable

HOSTILE = "Ann\x9b31m\x85\u202eevil\ud800 \x1b[2J"


def test_json_has_no_control_character_and_says_the_same() -> None:
    line = json_line({"guest": HOSTILE})
    assert all(character.isprintable() for character in line)
    assert json.loads(line) == {"guest": HOSTILE}


def test_a_tables_cell_has_none_either() -> None:
    assert all(character.isprintable() for character in printable(HOSTILE))
