"""A caller's trace: what is one, what of it is kept, and how it is sent on."""

from forwarder.observability.tracing import read_trace, trace_headers, trace_id_of
from tests.support.cases import for_each

IDS = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"
PARENT = f"00-{IDS}-01"
LONG = "long=" + "x" * 200
MORE, MOST = LONG.replace("long", "more"), LONG.replace("long", "most")


@for_each(
    ("given", "kept"),
    [
        (PARENT, PARENT),
        (f"00-{IDS}-00", f"00-{IDS}-00"),
        (f"00-{IDS}-03", f"00-{IDS}-03"),
        (f"cc-{IDS}-01", PARENT),
        (f"cc-{IDS}-ff-what-is-still-to-come", PARENT),
        (f"cc-{IDS}-fe", f"00-{IDS}-00"),
        (None, None),
        ("", None),
        ("nonsense", None),
        (f"ff-{IDS}-01", None),
        (f"{PARENT}-more", None),
        (f"cc-{IDS}-01more", None),
        (PARENT.upper(), None),
        (f"{PARENT}\r\nx: y", None),
        (f"cc-{IDS}-01-\r\nx: y", None),
        (f"{PARENT}, {PARENT}", None),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", None),
        (f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01", None),
        (f"00-{'4111111111111111':0>32}-00f067aa0ba902b7-01", None),
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-4111111111111111-01", None),
    ],
)
def test_what_is_a_traceparent(given: str | None, kept: str | None) -> None:
    assert read_trace(given) == kept
    assert read_trace(given, "a=1") == (kept and f"{kept} a=1")


@for_each(
    ("given", "kept"),
    [
        ("congo=t61rcWkgMzE,rojo=00f067aa0ba902b7", "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"),
        (" congo=1 ,\t, tenant@vendor/x*=a b ", "congo=1,tenant@vendor/x*=a b"),
        (",".join(f"k{number}=1" for number in range(32)), ",".join(f"k{number}=1" for number in range(32))),
        ("", ""),
        (",".join(f"k{number}=1" for number in range(33)), ""),
        ("a=1,a=2", "a=1"),
        ("a=1,nonsense", ""),
        # One entry a key: the first was written last.
        ("a=1,b=2,a=3", "a=1,b=2"),
        ("a=1, a=1 ,,a=2", "a=1"),
        (",".join(f"a={number}" for number in range(40)), "a=0"),
        ("a=1,a=nonsense=,a", ""),
        ("A=1", ""),
        ("a=ä", ""),
        ("a=1\r\nx: y", ""),
        ("a=4111 1111 1111 1111", ""),
        # Too much for everybody to pass on: first what is long goes, then what is last.
        (f"a=1,{LONG},b=2,{MORE},{MOST}", f"a=1,{LONG},b=2,{MORE}"),
        (",".join(f"k{number}={'x' * 100}" for number in range(6)), ",".join(f"k{number}={'x' * 100}" for number in range(4))),
    ],
)  # fmt: skip
def test_what_is_kept_of_a_tracestate(given: str, kept: str) -> None:
    trace = read_trace(PARENT, given)
    assert trace == (f"{PARENT} {kept}" if kept else PARENT)
    sent = dict(trace_headers(trace))
    assert sent == {"traceparent": PARENT} | ({"tracestate": kept} if kept else {})
    assert read_trace(sent["traceparent"], sent.get("tracestate")) == trace
    assert trace_id_of(trace) == IDS[:32]
