"""PostgreSQL as a local process, from the machine's own installation; it can be killed and brought back.

For tests and benchmarks. Writes only below the directory that the reaper gives it.
"""

import os
import pwd
import re
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tools.servers.ladder import Unavailable
from tools.servers.reaper import Reaper
from tools.servers.server_process import LOCALHOST, Command, ServerFailed, ServerProcess, free_ports, run_as

_USER = "forwarder"
DURABLE = {"fsync": "on"}
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}
_INITDB_SECONDS = 60
_RECOVERY_SECONDS = 300
_COPY_SECONDS = 600
_START_AGAIN_TIMES = 20
_STILL_IN_USE = "pre-existing shared memory block"


def binaries() -> Path | None:
    """Where `initdb` and `postgres` are: what PATH finds, else the newest of Debian's; None where there are none."""
    on_path = shutil.which("initdb")
    if on_path is not None and shutil.which("postgres") is not None:
        return Path(on_path).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=_version)
    return installed[-1].parent if installed else None


def _version(initdb: Path) -> int:
    number = re.match(r"\d+", initdb.parent.parent.name)
    return int(number.group()) if number else 0


@dataclass(frozen=True, slots=True)
class Secured:
    """TLS alone: who connects needs the superuser's password, or as another role a certificate of its name by `authority`."""

    certificate: Path
    key: Path
    authority: Path
    password: str


class PostgresServer:
    """A server of its own. All calls block: from a coroutine, use a thread.

    What it acknowledged survives a loss of power, unless `durable` is False; a `kill -9` it survives either way.
    `url` reaches its maintenance database as a superuser without password. Making one raises `Unavailable` where
    PostgreSQL is not installed, `start` raises `ServerFailed`. One that is `secured` is reached by `port`.
    """

    def __init__(self, reaper: Reaper, *, durable: bool = True, secured: Secured | None = None) -> None:
        self._durable = durable
        self._secured = secured
        found = binaries()
        if found is None:
            raise Unavailable("no PostgreSQL is installed (initdb)")
        self._binaries = found
        self._user = _unprivileged_user()
        self._home = reaper.directory()
        self._port = free_ports(1)[0]
        self._process = ServerProcess(self._command(), reaper)

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        return f"postgresql://{_USER}@{LOCALHOST}:{self._port}/postgres"

    @property
    def running(self) -> bool:
        return self._process.running

    def start(self) -> None:
        """Start it, on the data it had, or on new data the first time; return when it serves."""
        if not self._data.exists():
            self._initialise()
        for _ in range(_START_AGAIN_TIMES):
            try:
                return self._process.start()
            except ServerFailed as error:
                if _STILL_IN_USE not in str(error):
                    raise
        raise ServerFailed("PostgreSQL's data stayed in use by what was left of the killed server")

    def stop(self) -> None:
        """A fast shutdown: sessions are ended, the data is left clean."""
        self._process.stop()

    def kill(self) -> None:
        """As `kill -9` of the server: its sessions end, the next start recovers from the write-ahead log."""
        self._process.kill()

    def pause(self) -> None:
        """Freeze it: no new session gets an answer. Sessions that exist go on."""
        self._process.pause()

    def resume(self) -> None:
        self._process.resume()

    def restart(self) -> None:
        self.stop()
        self.start()

    def follow(self, primary: "PostgresServer") -> None:
        """Start as a streaming standby of `primary`, which runs, on a new copy of its data. It must not run."""
        while self._data.exists():  # what was killed still writes for a moment
            shutil.rmtree(self._data, ignore_errors=True)
        if self._user is not None:
            shutil.chown(self._home, self._user)
        copied = ["--pgdata", str(self._data), "--write-recovery-conf", "--checkpoint=fast", "--no-sync"]
        self._run("pg_basebackup", "--dbname", primary.url, *copied, seconds=_COPY_SECONDS)
        self.start()

    @property
    def home(self) -> Path:
        """What all that it keeps is in; empty before its first start."""
        return self._home

    @property
    def _data(self) -> Path:
        return self._home / "data"

    def _initialise(self) -> None:
        if self._user is not None:
            shutil.chown(self._home, self._user)
        if self._secured is not None:
            (self._home / "password").write_text(self._secured.password)
            self._give(self._home / "password")
        options = ["--auth=trust", f"--username={_USER}", "--encoding=UTF8", "--no-locale", "--no-sync"]
        options += [] if self._secured is None else [f"--pwfile={self._home / 'password'}"]
        self._run("initdb", "-D", self._data, *options, seconds=_INITDB_SECONDS)
        if self._secured is not None:
            self._secure(self._secured)

    def _run(self, program: str, *arguments: str | Path, seconds: float) -> None:
        done = subprocess.run(
            [self._binaries / program, *arguments],
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            cwd=self._home,
            **run_as(self._user),
        )
        if done.returncode != 0:
            raise ServerFailed(f"{program} failed: {done.stderr.strip()}")

    def _secure(self, secured: Secured) -> None:
        """Under the names that PostgreSQL looks for."""
        files = {"server.crt": secured.certificate, "server.key": secured.key, "root.crt": secured.authority}
        for name, source in files.items():
            shutil.copyfile(source, self._data / name)
            self._give(self._data / name)
        (self._data / "pg_hba.conf").write_text(
            f"hostssl all {_USER} {LOCALHOST}/32 scram-sha-256\nhostssl all all {LOCALHOST}/32 cert\n"
        )

    def _give(self, file: Path) -> None:
        """PostgreSQL takes no key that others may read."""
        file.chmod(0o600)
        if self._user is not None:
            shutil.chown(file, self._user)

    def _command(self) -> Command:
        settings = {
            "listen_addresses": LOCALHOST,
            "port": str(self._port),
            "unix_socket_directories": "",
            "max_connections": "200",
            "checkpoint_timeout": "30s",  # so that one that was killed under load is back within seconds
            "shared_buffers": "512MB",  # as whoever runs one would have it: the preset is for the smallest of machines
            **({} if self._secured is None else {"ssl": "on", "ssl_ca_file": "root.crt"}),
            **(DURABLE if self._durable else NOT_DURABLE),
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return Command(
            name="PostgreSQL",
            arguments=[str(self._binaries / "postgres"), "-D", str(self._data), *options],
            log=self._home / "postgres.log",
            ready="database system is ready to accept",
            stop_signal=signal.SIGINT,
            user=self._user,
            ready_seconds=_RECOVERY_SECONDS,
        )


def _unprivileged_user() -> str | None:
    """PostgreSQL refuses to run as root, so root starts it as somebody else. None where we are not root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
