"""What a child in the sandbox can see, reach and use: real bubblewrap, real attempts to get out."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from hmp_node.actions.mind_settings import SandboxSettings
from hmp_node.agent.sandbox import BWRAP, PYTHON, SPARE_BYTES, Bind, Launch, Sandbox
from hmp_node.errors import Failed, Failure

REQUIRED = os.environ.get("TEST_SANDBOX") == "required"
needs_sandbox = pytest.mark.skipif(not Path(BWRAP).exists() and not REQUIRED, reason="there is no bubblewrap here")
pytestmark = needs_sandbox

SETTINGS = SandboxSettings(shell=True, tasks=16, file_bytes=1_048_576, memory_bytes=536_870_912)


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return Sandbox(SETTINGS, hidden=tmp_path)


async def run(sandbox: Sandbox, *argv: str, **more: object) -> tuple[int, str]:
    process = await sandbox.start(Launch(argv, more.pop("files", {}), **more))  # type: ignore[arg-type]
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(errors="replace")


async def sh(sandbox: Sandbox, script: str) -> tuple[int, str]:
    return await run(sandbox, "/bin/sh", "-c", script)


async def python(sandbox: Sandbox, code: str, **more: object) -> tuple[int, str]:
    return await run(sandbox, PYTHON, "-I", "-c", code, **more)


async def test_it_can_be_had_here(sandbox: Sandbox) -> None:
    assert await sandbox.probe() == ""
    assert sandbox.problem == ""


async def test_missing_bubblewrap_is_said_and_nothing_runs(tmp_path: Path) -> None:
    without = Sandbox(SETTINGS, hidden=tmp_path, bwrap=str(tmp_path / "bwrap"))
    with pytest.raises(Failed, match=r"there is no .*bwrap") as caught:
        await without.start(Launch(("/bin/true",), {}))
    assert caught.value.code == Failure.NO_SANDBOX
    assert "bwrap" in without.problem


@pytest.mark.parametrize(
    ("fake", "said"),
    [
        ("echo 'bwrap: No permissions to create new namespace' >&2; exit 1", "No permissions to create"),
        ('for _ in 1 2 3; do while [ "$1" != -- ]; do shift; done; shift; done; exec "$@"', "sees the home"),
    ],
)
async def test_a_sandbox_that_holds_nothing_back_is_refused(tmp_path: Path, fake: str, said: str) -> None:
    bwrap = tmp_path / "bwrap"
    bwrap.write_text(f"#!/bin/sh\n{fake}\n")
    bwrap.chmod(0o755)
    open_to = tmp_path
    while open_to != open_to.parent and os.geteuid() == 0:  # its child is nobody, who has to get there
        open_to.chmod(open_to.stat().st_mode | 0o055)
        open_to = open_to.parent
    lax = Sandbox(SETTINGS, hidden=tmp_path, bwrap=str(bwrap))
    with pytest.raises(Failed, match=said) as caught:
        await lax.start(Launch(("/bin/true",), {}))
    assert caught.value.code == Failure.NO_SANDBOX


async def test_arguments_arrive_as_they_are(sandbox: Sandbox) -> None:
    odd = ["", "a b", "$(id)", "`id`", ";id", "--version", "-c", "é ж 🙂", "*", "'\"", "a\nb"]
    code, out = await run(sandbox, PYTHON, "-I", "-c", "import sys; print(sys.argv[1:])", *odd)
    assert (code, out.strip()) == (0, repr(odd))


async def test_no_variable_of_the_environment_comes_in(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HMP_TEST_SECRET", "sesame")
    _, out = await run(sandbox, "/usr/bin/env")
    assert {line.partition("=")[0] for line in out.split()} <= {"PATH", "HOME", "LANG", "PWD"}
    assert "sesame" not in out
    _, out = await sh(sandbox, "cat /proc/*/environ | tr '\\0' '\\n'")
    assert "sesame" not in out


async def test_it_is_nobody_without_capabilities(sandbox: Sandbox) -> None:
    _, out = await sh(sandbox, "id -u; grep -h Cap /proc/self/status; grep NoNewPrivs /proc/self/status")
    lines = out.split("\n")
    assert lines[0] == "65534"
    assert all(line.endswith("0" * 16) for line in lines if line.startswith("Cap"))
    assert "NoNewPrivs:\t1" in lines


async def test_no_home_no_other_process_no_file_of_the_host(sandbox: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "identity.key"
    secret.write_text("sesame")
    _, out = await sh(sandbox, f"cat {secret} /etc/passwd /etc/shadow /proc/1/root{secret}; ls /root /home; ls /")
    assert "sesame" not in out
    assert "root:" not in out
    names = out.split("\n")
    assert {"bin", "dev", "job", "proc", "tmp", "usr"} <= set(names)
    assert not {"root", "home", "run", "sys", "mnt", "boot"} & set(names)
    _, out = await sh(sandbox, "ls -d /proc/[0-9]* | wc -l")
    assert int(out) < 10


async def test_nothing_can_be_written_but_its_own_folder(sandbox: Sandbox) -> None:
    _, out = await sh(
        sandbox, "for at in / /usr /dev /etc /proc/sys/kernel; do touch $at/x 2>/dev/null && echo $at; done"
    )
    assert out == ""
    code, out = await sh(sandbox, "echo hello > kept && cat /tmp/kept")
    assert (code, out) == (0, "hello\n")
    code, _ = await sh(sandbox, "cat kept")
    assert code != 0


async def test_its_folder_and_its_files_are_bounded(sandbox: Sandbox) -> None:
    _, out = await sh(
        sandbox,
        "for n in 1 2 3 4; do head -c 500000 /dev/zero > f$n 2>/dev/null; done;"
        " head -c 9000000 /dev/zero > g; cat * | wc -c",
    )
    assert int(out.split()[-1]) <= SETTINGS.file_bytes + SPARE_BYTES


async def test_no_network_not_even_to_this_machine(sandbox: Sandbox, tmp_path: Path) -> None:
    with socket.socket() as listener, socket.socket(socket.AF_UNIX) as local, socket.socket(socket.AF_UNIX) as abstract:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        local.bind(str(tmp_path / "s"))
        local.listen()
        abstract.bind(f"\0hmp-test-{os.getpid()}")
        abstract.listen()
        port = listener.getsockname()[1]
        code, out = await python(
            sandbox,
            f"""
import socket
for family, at in ((socket.AF_INET, ("127.0.0.1", {port})), (socket.AF_INET, ("192.0.2.1", 80)),
                   (socket.AF_UNIX, {str(tmp_path / "s")!r}), (socket.AF_UNIX, {f"{chr(0)}hmp-test-{os.getpid()}"!r})):
    try:
        socket.socket(family).connect(at)
        print("reached", at)
    except OSError as error:
        print("no", error.errno)
""",
        )
    assert code == 0
    assert "reached" not in out
    assert out.count("no ") == 4


async def test_no_further_namespace_and_no_mount(sandbox: Sandbox) -> None:
    _, out = await sh(
        sandbox, "unshare -U id; unshare -m id; mount -t tmpfs none /job; mount -o remount,rw /; echo end"
    )
    assert "uid=" not in out
    code, _ = await sh(sandbox, "touch /x 2>/dev/null")
    assert code != 0


async def test_a_fork_bomb_stays_small(sandbox: Sandbox) -> None:
    code, out = await python(
        sandbox,
        """
import os, time
made = 0
try:
    while made < 500:
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
        made += 1
except OSError:
    pass
print(made)
""",
    )
    assert code == 0
    assert int(out) < SETTINGS.tasks


async def test_memory_and_open_files_are_bounded(sandbox: Sandbox) -> None:
    code, out = await python(sandbox, "x = bytearray(700_000_000)")
    assert code != 0
    assert "MemoryError" in out
    _, out = await python(
        sandbox, "import os\nn = 0\ntry:\n  while n < 999: os.dup(0); n += 1\nexcept OSError: print(n)"
    )
    assert int(out) < SETTINGS.open_files


async def test_the_processor_is_bounded(tmp_path: Path) -> None:
    short = Sandbox(SandboxSettings(cpu_s=1), hidden=tmp_path)
    code, _ = await sh(short, "while :; do :; done")
    assert code in (128 + 24, 128 + 9)


async def test_files_lie_in_its_folder(sandbox: Sandbox) -> None:
    code, out = await run(sandbox, PYTHON, "-I", "/job/s.py", files={"s.py": "print('жук 🐞')", "b": "two"})
    assert (code, out) == (0, "жук 🐞\n")


async def test_standard_input_holds_what_was_given_and_ends(sandbox: Sandbox) -> None:
    assert await run(sandbox, "/usr/bin/cat") == (0, "")
    assert await run(sandbox, "/usr/bin/cat", stdin=b"hello") == (0, "hello")


async def test_a_folder_can_be_bound_and_a_part_of_it_hidden(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "inner").mkdir()
    (tmp_path / "open" / "a").write_text("one")
    (tmp_path / "open" / "key").write_text("sesame")
    (tmp_path / "open" / "inner" / "b").write_text("two")
    at = tmp_path / "open"
    binds = (Bind(str(at)), Bind(str(at / "inner"), hidden=True), Bind(str(at / "key"), hidden=True))
    script = f"cat {at}/a {at}/key; ls {at}/inner; echo x > {at}/c"
    _, out = await run(sandbox, "/bin/sh", "-c", script, binds=binds, as_owner=True)
    assert out.startswith("one")
    assert "sesame" not in out
    assert "two" not in out
    assert not (at / "c").exists()


async def test_nothing_of_the_terminal_can_be_reached(sandbox: Sandbox) -> None:
    _, out = await sh(sandbox, "(exec 3</dev/tty) 2>/dev/null && echo tty; ls /proc/self/fd | sort -n | tail -1")
    assert "tty" not in out
    assert int(out.split()[-1]) <= 4
