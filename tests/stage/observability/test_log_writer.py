"""A reader of the log who stalls stops nobody: lines wait up to a bound, then they are dropped and counted."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from forwarder.observability.logging import MAX_WAITING_CHARACTERS, WriterThread
from forwarder.observability.metrics import LOG_LINES_DROPPED


@contextmanager
def pipe() -> Iterator[tuple[int, WriterThread]]:
    """Its end to read from, and who writes to the other."""
    read, write = os.pipe()
    try:
        yield read, WriterThread(write)
    finally:
        os.close(write)
        os.close(read)


def dropped() -> float:
    (metric,) = LOG_LINES_DROPPED.collect()
    return next(sample.value for sample in metric.samples if sample.name.endswith("_total"))


def test_lines_are_written_in_their_order() -> None:
    with pipe() as (read, writer):
        for number in range(100):
            writer.write(f"{number}\n")
        writer.drain()
        assert os.read(read, 65536).split() == [b"%d" % number for number in range(100)]


def test_who_does_not_read_is_not_waited_for_and_what_is_too_much_is_dropped_and_counted() -> None:
    line, before = "x" * 999 + "\n", dropped()
    lines = 2 * MAX_WAITING_CHARACTERS // len(line)
    with pipe() as (read, writer):
        for _ in range(lines):
            writer.write(line)
        lost = int(dropped() - before)
        assert lines // 2 - 200 <= lost <= lines // 2  # some were in the pipe
        written = bytearray()

        def read_all() -> None:
            while len(written) < (lines - lost) * len(line):
                written.extend(os.read(read, 65536))

        reading = threading.Thread(target=read_all)
        reading.start()
        reading.join(60)
        writer.drain()
        assert bytes(written[: (lines - lost) * len(line)]) == line.encode() * (lines - lost)
        writer.write("goes on\n")
        writer.drain()
        assert os.read(read, 65536).endswith(b"goes on\n")


def test_a_reader_who_is_gone_stops_nobody() -> None:
    read, write = os.pipe()
    writer, before = WriterThread(write), dropped()
    os.close(read)
    os.close(write)
    for _ in range(3):
        writer.write("to nobody\n")
        writer.drain()
    assert dropped() == before + 3


PROGRAM = """
import logging, sys, structlog
from forwarder.observability.logging import configure_logging
configure_logging("info", sys.argv[1])
for number in range(20_000):
    structlog.get_logger().info("thing.done", number=number)
    structlog.get_logger().error("thing.failed", number=number)
logging.getLogger("library").error("also")
print("done", flush=True)
"""


@pytest.mark.parametrize("style", ["json", pytest.param("pretty", marks=pytest.mark.slow)])
def test_a_process_whose_log_nobody_reads_works_and_ends(style: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, style], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        assert process.wait(60) == 0


def test_the_last_lines_are_written_before_a_process_ends() -> None:
    few = PROGRAM.replace("20_000", "5")
    ended = subprocess.run([sys.executable, "-c", few, "json"], capture_output=True, text=True, check=True, timeout=60)
    assert len(ended.stderr.splitlines()) == 11
    assert ended.stderr.splitlines()[-1].startswith('{"event":"also"')
