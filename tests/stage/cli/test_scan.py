"""What `forwarder scan` finds in a text and in a file, and what it says of it."""

import json
from pathlib import Path

from forwarder.operate.scan import MAX_HITS_LISTED, Scanned, cards_in, look_for, scan_file
from tests.support.cards import MASKED, NUMBER, SPELLINGS
from tests.support.cases import for_each


@for_each("spelt", SPELLINGS.values(), ids=SPELLINGS)
def test_a_card_is_found_in_a_text_and_in_json_however_that_is_escaped(spelt: str) -> None:
    for text in (
        spelt,
        json.dumps({"a": [{"b": spelt}]}),
        json.dumps([spelt], ensure_ascii=False),
        json.dumps({spelt: 1}),
    ):
        assert "card_number" in cards_in(text)


@for_each(
    "text",
    ["", "{", f'{{"notes":"{MASKED}"}}', '{"at":1765400000000,"total":4.11111111111111}', '{"a":[null,true,1.5]}'],
)
def test_nothing_is_found_where_nothing_is(text: str) -> None:
    assert not cards_in(text)


def test_a_whole_number_in_json_is_looked_at() -> None:
    assert cards_in(f'{{"phone":{NUMBER}}}') == {"card_number"}


def test_a_file_is_looked_through_to_its_end_and_a_hit_is_told_by_its_line(tmp_path: Path) -> None:
    file = tmp_path / "some.log"
    # The second line is longer than what is read at once, and the number stands where one part ends and the next begins.
    long = b"x" * (1024 * 1024 - 7) + b" " + NUMBER.encode() + b" " + b"y" * 1_000_000 + b"\n"
    file.write_bytes(b"fine\n" + long + b"token-7 \xff\n")
    progress = Scanned(str(file), "file")
    scan_file(file, look_for(["token-7"], cards=True), progress)
    assert progress.bytes >= file.stat().st_size
    assert {(hit.key, hit.what) for hit in progress.hits} == {("line 2", "card_number"), ("line 3", "known_value")}


def test_hits_beyond_what_anybody_reads_are_counted_alone(tmp_path: Path) -> None:
    file = tmp_path / "some.log"
    file.write_text(f"{NUMBER}\n" * (MAX_HITS_LISTED + 5))
    progress = Scanned(str(file), "file")
    scan_file(file, cards_in, progress)
    assert (progress.found, len(progress.hits)) == (MAX_HITS_LISTED + 5, MAX_HITS_LISTED)
