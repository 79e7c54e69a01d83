"""Mappings as they are loaded: what they can do, and every mistake that can be seen without the PMS."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from forwarder.pms.mapping.model import counted, source_of
from forwarder.pms.mapping.values import MISSING, assembled, clashes, same, value_at
from forwarder.pms.port import BadOptions, Capabilities
from forwarder.pms.registry import check_options
from tests.support.cases import for_each
from tests.support.pms.kinds.mapped import CLOUDBEDS_LIKE, LODGIFY_LIKE, mapping_of

GUIDE = Path(__file__).resolve().parents[4] / "docs" / "guides" / "map-a-pms.md"

LEAST: dict[str, Any] = {"create": {"path": "/bookings", "body": {"ref": "reference"}}}
SHOWN: dict[str, Any] = {"reference": "ref", "status": {"path": "state", "confirmed": ["ok"]}}
FIND: dict[str, Any] = {"path": "/bookings", "query": {"ref": "reference"}, "items": "data"}
CANCEL: dict[str, Any] = {"method": "DELETE", "path": "/bookings/{pmsReservationId}"}
WHOLE: dict[str, Any] = {**LEAST, "reservation": SHOWN, "find": FIND, "cancel": CANCEL}


def with_(path: str, value: Any) -> dict[str, Any]:
    """`WHOLE` with `value` at `path`."""
    *steps, last = path.split("/")
    whole = copied = {**WHOLE}
    for step in steps:
        copied[step] = {**copied.get(step, {})}
        copied = copied[step]
    copied[last] = value
    return whole


def without(name: str) -> dict[str, Any]:
    return {part: value for part, value in WHOLE.items() if part != name}


def fault_of(mapping: Any) -> str:
    with pytest.raises(BadOptions) as raised:
        check_options("generic", {"mapping": mapping})
    return str(raised.value)


@for_each(
    ("mapping", "capabilities"),
    [
        (LEAST, Capabilities(idempotent_create=False, find_by_reference=False, cancel=False)),
        (WHOLE, Capabilities(idempotent_create=False, find_by_reference=True, cancel=True)),
        (with_("create/keyHeader", "Idempotency-Key"), Capabilities(True, True, True)),
        (CLOUDBEDS_LIKE, Capabilities(idempotent_create=False, find_by_reference=True, cancel=True)),
        (LODGIFY_LIKE, Capabilities(idempotent_create=False, find_by_reference=True, cancel=True)),
    ],
)
def test_what_a_pms_can_do_follows_from_its_mapping(mapping: Any, capabilities: Capabilities) -> None:
    assert mapping_of(mapping).capabilities({}) == capabilities


def test_a_mapping_is_a_table_or_the_text_of_a_document() -> None:
    assert mapping_of(LODGIFY_LIKE) == mapping_of(yaml.safe_load(LODGIFY_LIKE))


FAULTS: list[tuple[Any, str]] = [
    ("[create]\npath = /x", r"mapping: line 2: "),
    (with_("reservation", "$.x"), r"mapping\.reservation: must be a table of names and values, such as \{.*x\}"),
    (
        with_("reservation/id", "$.data[0]['id']"),
        r"reservation\.id: \$\.data\[0\]\['id'\] is JSONPath; here it is written data\.0\.id",
    ),
    (with_("limits", 5), r"mapping\.limits: must be a list"),
    (with_("create/success", {"status": 201}), r"create\.success\.status: must be a list"),
    (with_("baseUrl", "ftp://x"), r"baseUrl: must be an address without a query, such as https://"),
    (with_("create/body", {"x": {"constant": {"a": 1}}}), r"body\.x\.constant: must be a text or true or false or"),
    (with_("create/body", {"x": {"constant": 1, "values": {"1": "one"}}}), r"`values`, .* are for `field`"),
    (5, r"mapping: .*must be a table of names and values"),
    ({}, r"mapping\.create: is required"),
    (with_("creat", {}), r"mapping\.creat: there is no creat here"),
    (with_("create/pth", "/x"), r"mapping\.create\.pth: there is no pth here"),
    (with_("create/path", "bookings"), r"mapping\.create\.path: a path begins with a slash"),
    (with_("create/path", "/bookings?x=1"), r"mapping\.create\.path: .*leaves the query to `query`"),
    (with_("create/path", "/a//b"), r"mapping\.create\.path: .*no empty segment"),
    (with_("create/path", "/a/../b"), r"mapping\.create\.path: a path begins"),
    (with_("create/path", "/a/{propertyId"), r"mapping\.create\.path: a path has its fields in braces"),
    (with_("create/path", "/a/{propertyId!r}"), r"mapping\.create\.path: .*bare name"),
    (with_("create/path", "/a/{propertyId:>9}"), r"mapping\.create\.path: .*bare name"),
    (with_("create/path", "/a/{property}"), r"mapping\.create: path: there is no field property"),
    (with_("create/path", "/a/{}"), r"mapping\.create: path: there is no field"),
    (with_("create/path", "/a/{card.cardNumber}"), r"mapping\.create: card\.cardNumber: a card may be in a body alone"),
    (with_("create/query", {"c": "card.cvv"}), r"mapping\.create: card\.cvv: a card may be in a body alone"),
    (with_("create/method", "GET"), r"mapping\.create: method: not GET"),
    (with_("create/method", "FETCH"), r"mapping\.create\.method: must be one of GET, POST"),
    (
        with_("create/body", {"x": "totalPrise"}),
        r"create\.body\.x: .*'totalPrise'; did you mean 'totalPrice'",
    ),
    (with_("create/body", {"x": "zzzzzzzz"}), r"there is no field 'zzzzzzzz'; there are arrivalDate, "),
    (with_("create/body", {"x": "pmsReservationId"}), r"mapping\.create: pmsReservationId cannot be sent"),
    (with_("create/leftOut", ["numberOfPets", "reference"]), r"mapping\.create: leftOut: reference is sent"),
    (with_("create/leftOut", ["pets"]), r"create\.leftOut\.0: there is no field 'pets'; did you mean"),
    (with_("create/body", {"x": {}}), r"create\.body\.x: give one of `field`, `join`, `constant`"),
    (with_("create/body", {"x": {"field": "nights", "constant": 1}}), r"give one of `field`, `join`, `constant`"),
    (with_("create/body", {"x": {"constant": 1, "as": "text"}}), r"`addDays` are for `field`"),
    (with_("create/body", {"x": {"field": "nights", "as": "cents"}}), r"body\.x\.as: must be one of text, number"),
    (
        with_("create/body", {"x": {"field": "notes", "dateFormat": "%d/%m/%Y"}}),
        r"`dateFormat` and `addDays` are for arrivalDate",
    ),
    (
        with_("create/body", {"x": {"field": "arrivalDate", "dateFormat": "%d/%m"}}),
        r"dateFormat: a date format has day",
    ),
    (with_("create/body", {"x": {"field": "arrivalDate", "dateFormat": "%Q"}}), r"dateFormat: a date format has day"),
    (
        with_("create/body", {"a": "notes", "a.b": "nights"}),
        r"mapping\.create: body: a cannot be a value and have a\.b",
    ),
    (with_("create/body", {"a.1.b": "notes"}), r"body: a is a list, whose positions are 0, 1, 2"),
    (with_("create/body", {"a.0": "notes", "a.b": "nights"}), r"body: a is a list"),
    (with_("create/body", {"a..b": "notes"}), r"body: 'a\.\.b' is no path"),
    (with_("create/success", {"status": []}), r"mapping\.create: success\.status: one or more of 200 to 299"),
    (with_("create/success", {"status": [302]}), r"mapping\.create: success\.status: one or more of 200 to 299"),
    (with_("create/success", {"status": [99]}), r"success\.status"),
    (with_("create/success", {"status": [200], "when": {"a..b": 1}}), r"a path is names and positions"),
    (with_("create/id", "a b"), r"mapping\.create\.id: a path is names and positions"),
    (with_("create/keyHeader", "Authorization"), r"mapping\.create\.keyHeader: a header is named by"),
    (with_("create/errors", [{"becomes": "in_doubt"}]), r"create\.errors\.0: a rule has a condition"),
    (
        with_("create/errors", [{"status": [409], "becomes": "nope"}]),
        r"errors, rule 1: becomes is one of card_refused, ",
    ),
    (with_("create/errors", [{"status": [409], "becomes": "absent"}]), r"errors, rule 1: becomes is one of"),
    (with_("create/errors", [{"status": [404], "becomes": "room_not_found"}]), r"rule 1: .*any server on the way"),
    (with_("create/errors", [{"status": [500], "becomes": "pms_refused"}]), r"rule 1: .*any server on the way"),
    (with_("create/errors", [{"status": [503], "becomes": "deferred"}]), r"rule 1: .*any server on the way"),
    (with_("create/errors", [{"status": [200], "becomes": "pms_refused"}]), r"rule 1: .*any server on the way"),
    (with_("create/errors", [{"matches": {"m": "("}, "becomes": "in_doubt"}]), r"matches\.m: not a regular expression"),
    (with_("find/query", {}), r"mapping\.find: a look-up either asks for our `reference`"),
    (with_("find/pages", {"query": "page"}), r"mapping\.find: a look-up either asks for our `reference`"),
    (
        with_("find", {"path": "/b", "items": "d", "query": {"p": "nights"}, "pages": {"query": "p"}}),
        r"pages\.query: p is in `query` already",
    ),
    (with_("find/query", {"r": "reference", "c": "card.cvv"}), r"card\.cvv"),
    (with_("find/method", "DELETE"), r"mapping\.find: method: not DELETE"),
    (with_("find/body", {"r": "reference"}), r"mapping\.find: a GET has no body"),
    (with_("find/errors", [{"status": [404], "becomes": "absent"}]), r"rule 1: .*any server on the way"),
    (with_("reservation/reference", None), r"mapping: find: needs reservation\.reference and reservation\.status"),
    (with_("reservation/status", None), r"mapping: find: needs reservation\.reference and reservation\.status"),
    (with_("create/body", {"x": "notes"}), r"mapping: find: what is created must carry our `reference`"),
    (with_("reservation/status", {"path": "s", "confirmed": []}), r"status\.confirmed"),
    (
        with_("reservation/status", {"path": "s", "confirmed": ["OK"], "cancelled": ["ok"]}),
        r"a word stands for one of confirmed, cancelled, or tentative",
    ),
    (with_("reservation/record", {"price": "p"}), r"reservation\.record\.price.*: must be one of source, "),
    (
        with_("cancel/path", "/bookings"),
        r"mapping\.cancel: a cancellation says which reservation: send pmsReservationId",
    ),
    (with_("cancel/success", {"status": [200]}), r"mapping\.cancel: success: of other statuses than 204, `when` says"),
    (with_("cancel/errors", [{"status": [404], "becomes": "cancelled"}]), r"rule 1: .*any server on the way"),
    (with_("cancel/body", {"c": "card.cvv"}), r"mapping\.cancel: card\.cvv cannot be sent"),
    (with_("cancel/method", None), r"mapping\.cancel\.method"),
    (with_("auth", {"form": "header"}), r"mapping\.auth: `name` is for the form header, which needs it"),
    (with_("auth", {"form": "bearer", "name": "X"}), r"mapping\.auth: `name` is for the form header"),
    (with_("auth", {"form": "digest"}), r"mapping\.auth\.form: must be one of bearer, basic"),
    (with_("headers", {"Host": "x"}), r"mapping\.headers\.Host.*: a header is named by"),
    (with_("headers", {"X-A": "a\nb"}), r"mapping\.headers\.X-A"),
    (with_("message", "a..b"), r"mapping\.message: a path is names and positions"),
    (
        with_("create/body", {"ref": "reference", "x": {"option": "agency"}}),
        r"options: there is no agency; declare what is sent",
    ),
    (with_("options", {"agency": {"description": "x"}}), r"options: agency is sent nowhere"),
    (
        with_("create/body", {"ref": "reference", "x": {"field": "nights", "addDays": 1}}),
        r"`addDays` are for arrivalDate",
    ),
    (with_("create/referenceInNotes", True), r"referenceInNotes: `body` names no field that takes `notes`"),
    (with_("auth", {"form": "oauth"}), r"`oauth` is for the form oauth, which needs it"),
    (with_("auth", {"form": "oauth", "oauth": {"tokenUrl": "http://x/y"}}), r"tokenUrl: an address below the base URL"),
    (with_("auth", {"form": "signed"}), r"`signature` is for the form signed"),
    (
        with_(
            "auth",
            {"form": "signed", "signature": {"headers": {"X-S": "signature"}, "text": ["method", "nonce", "key"]}},
        ),
        r"headers: one must carry the nonce that is signed",
    ),
    (with_("auth", {"form": "bearer", "credential": "key"}), r"`credential` is for the form basic"),
    (with_("echo", "now and then"), r"mapping\.echo: must be one of always"),
    (with_("reservation/status/tentative", ["Open"]), r"tentative: is for a PMS that `confirm` is asked of"),
    (with_("confirm", {"method": "PUT", "path": "/b"}), r"a confirmation says which reservation"),
    (
        with_("confirm", {"method": "PUT", "path": "/b/{pmsReservationId}", "success": {"status": [200]}}),
        r"or `readBack` looks at it afterwards",
    ),
    (with_("cancel/readBack", {"path": "/b"}), r"readBack says which reservation: send pmsReservationId"),
    (
        with_("find", {"path": "/b", "items": "d", "pages": {"by": "cursor", "query": "c"}}),
        r"`next` is for cursor, which needs it",
    ),
    (
        with_("find", {"path": "/b", "items": "d", "pages": {"by": "cursor", "query": "c", "next": "n", "count": "k"}}),
        r"`count` and `more` are for page, offset",
    ),
    (with_("find/match", "stay"), r"a match by stay goes through `pages`, and needs the arrival"),
    (
        with_("evidence", [{"of": "creat.path", "by": "vendor"}]),
        r"creat\.path is nothing .*did you mean 'create\.path'",
    ),
    (
        with_("evidence", [{"of": ["create", "find"], "by": "vendor"}]),
        r"nothing says by what auth, reservation\.reference, .* is known",
    ),
]


@for_each(("mapping", "fault"), FAULTS)
def test_a_mistake_is_found_when_it_is_loaded(mapping: Any, fault: str) -> None:
    assert re.search(fault, fault_of(mapping)), fault_of(mapping)


@for_each(
    ("text", "fault"),
    [
        (
            "create:\n  path: /x\n  bdy: {a: reference}\n",
            "line 3: create.bdy: there is no bdy here; did you mean 'body'?",
        ),
        ("create:\n  path: /x\n  method: PSOT\n", "line 3: create.method: .*did you mean 'POST'"),
        ("create:\n  path: /x\n  body:\n    a: {field: totalPrise}\n", "line 4: .*did you mean 'totalPrice'"),
        ("create:\n  path: /x\n  path: /y\n", "line 3: path is there twice"),
        (f"settles: {'9' * 5_000}\n", "line 1: settles: must be 3600 or less"),
        ("create: &one\n  path: /x\nfind: *one\n", "line 1: & and \\* are not taken"),
        ("create: {path: [/x", "line 1: is not YAML"),
        ("[" * 9_000, "nested too deeply"),
        ("", "the document is empty"),
        ("- create", "mapping: .*must be a table of names and values"),
    ],
)
def test_a_mistake_in_a_document_is_said_with_its_line(text: str, fault: str) -> None:
    assert re.search(fault, fault_of(text)), fault_of(text)


def test_a_document_is_taken_literally() -> None:
    """What YAML 1.1 would guess: truth in `no`, a day in 2027-01-31, eight in 010."""
    values = {"a": "no", "b": "2027-01-31", "c": "010", "d": "true", "e": "1.5"}
    body = "".join(f"    {name}: {{constant: {value}}}\n" for name, value in values.items())
    mapping = mapping_of(f"create:\n  path: /x\n  body:\n{body}")
    constants = {name: source.constant for name, source in mapping.create.body.items()}
    assert constants == {"a": "no", "b": "2027-01-31", "c": "010", "d": True, "e": 1.5}


def test_of_two_sources_the_nearer_counts_and_an_unknown_makes_it_an_experiment() -> None:
    founded = [{"of": ["auth", "create", "find", "cancel", "reservation"], "by": "vendor"}]
    assert not mapping_of(with_("evidence", founded)).experimental
    mapping = mapping_of(with_("evidence", [*founded, {"of": "create.body.ref", "by": "unknown"}]))
    assert mapping.experimental
    assert source_of(mapping.evidence, "create.body.ref") == "unknown"
    assert source_of(mapping.evidence, "create.path") == "vendor"
    assert counted(mapping.evidence, mapping.statements)["unknown"] == 1
    assert not mapping_of(with_("evidence", [*founded, {"of": "cancel.path", "by": "unknown"}])).experimental


def test_what_the_faults_are_made_of_is_right() -> None:
    check_options("generic", {"mapping": WHOLE})
    check_options("generic", {"mapping": without("find")})


def test_every_mapping_of_the_guide_is_right() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    whole = [block for block in blocks if re.search("^create:", block, re.MULTILINE)]
    assert whole
    for block in whole:
        mapping_of(block)


def test_paths_lead_to_what_stands_there() -> None:
    document = {"a": [{"b": 1}, None], "0": "zero"}
    assert value_at(document, "") == document
    assert value_at(document, "a.0.b") == 1
    assert value_at(document, "a.1") is None
    assert value_at(document, "0") == "zero"
    for nowhere in ("a.2", "a.-1", "a.b", "a.0.b.c", "x", "a.0x"):
        assert value_at(document, nowhere) is MISSING
    assert value_at(5, "") == 5
    assert value_at(MISSING, "a") is MISSING


def test_documents_are_put_together() -> None:
    assert assembled({"a.b": 1, "a.c.0": 2, "a.c.1.d": {"0": 1}, "e": []}) == {
        "a": {"b": 1, "c": [2, {"d": {"0": 1}}]},
        "e": [],
    }
    assert assembled({"rooms.1.id": 7}) == {"rooms": [{"id": 7}]}
    assert assembled({}) == {}
    assert not clashes(["a.b", "a.c.0", "a.c.1.d"])


def test_true_is_not_one() -> None:
    assert same(1, 1.0)
    assert same("a", "a")
    for one, other in ((True, 1), (0, False), ("1", 1), (MISSING, None), ([], None)):
        assert not same(one, other)
