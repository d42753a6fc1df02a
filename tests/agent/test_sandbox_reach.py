"""What code in the sandbox can reach of other processes, of the network and of the kernel."""

from __future__ import annotations

import json
import platform
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.sandboxed import said, sandboxed
from weft.agent import landlock, rlimits, sandbox, seccomp

MARKS = (rlimits.MARK_RESOURCE, rlimits.ZYGOTE_MARK_RESOURCE)
COLUMN, _ = seccomp.MACHINES[platform.machine()]


@pytest.fixture
def neighbour() -> Iterator[int]:
    """Another process of the same user."""
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield process.pid
    process.kill()
    process.wait()


@pytest.mark.parametrize("whom", ["os.getppid()", "{neighbour}", "-os.getpgid({neighbour})"])
def test_no_process_outside_can_be_signalled(whom: str, neighbour: int) -> None:
    act = f"tried(os.kill, {whom.format(neighbour=neighbour)}, 0)"
    assert said(act, isolation="L0") == "allowed"
    assert said(act) == "PermissionError"


def test_it_can_signal_itself_and_what_it_has_started() -> None:
    code = """
import signal, subprocess
signal.signal(signal.SIGUSR1, lambda *_: print("heard"))
os.kill(os.getpid(), signal.SIGUSR1)
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
child.terminate()
print(child.wait())
"""
    assert sandboxed(code).stdout.split() == ["heard", "-15"]


@pytest.mark.parametrize("name", ["environ", "maps", "mem", "cwd", "fd/0"])
def test_the_inside_of_another_process_stays_its_own(name: str, neighbour: int) -> None:
    look = "os.readlink" if name in ("cwd", "fd/0") else "open"
    act = f"tried({look}, '/proc/{neighbour}/{name}')"
    assert said(act, isolation="L0") == "allowed"
    assert said(act) == "PermissionError"


def test_it_sees_its_own_process() -> None:
    assert said("[name for name in ('status', 'maps', 'limits') if not open('/proc/self/' + name).read()]") == []


def test_every_denied_call_is_not_permitted() -> None:
    numbers = list(seccomp._denied(COLUMN))
    code = f"""
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
for number in {numbers}:
    result = libc.syscall(number, -1, -1, -1, -1, -1, -1)
    if (result, ctypes.get_errno()) != (-1, errno.EPERM):
        print(number, result, ctypes.get_errno())
"""
    ended = sandboxed(code)
    assert (len(numbers) > 40, ended.stdout, ended.stderr, ended.returncode) == (True, "", "", 0)


def test_a_denied_call_is_refused_by_the_sandbox_and_not_by_its_arguments(neighbour: int) -> None:
    code = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.ptrace(16, {neighbour}, 0, 0))
"""
    assert sandboxed(code, isolation="L0").stdout.split() == ["0"]
    assert sandboxed(code).stdout.split() == ["-1"]


@pytest.mark.parametrize("flag", [0x10000000, 0x00020000, 0x40000000])
def test_no_namespace_can_be_made_by_clone(flag: int) -> None:
    number = seccomp.CLONE[COLUMN]
    code = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
made = libc.syscall({number}, {flag} | 17, 0, 0, 0, 0)
if made == 0:
    os._exit(0)
print(made, ctypes.get_errno())
"""
    assert sandboxed(code).stdout.split() == ["-1", "1"]


@pytest.mark.parametrize("truncating", [False, True])
@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_every_jump_of_the_program_stays_inside_it(machine: str, truncating: bool) -> None:
    program = seccomp.program_for(machine, marked=MARKS, shielded=(10, 11), truncating=truncating)
    assert program is not None
    steps = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    for place, (what, yes, no, _) in enumerate(steps):
        assert what in (
            seccomp.LOAD,
            seccomp.EQUAL,
            seccomp.AT_LEAST,
            seccomp.ANY_BIT,
            seccomp.KEEP_BITS,
            seccomp.RETURN,
        )
        assert place + 1 + max(yes, no) < len(steps) or what == seccomp.RETURN


def test_a_machine_without_known_numbers_has_no_program() -> None:
    assert seccomp.program_for("pdp11") is None


def test_other_processes_are_shielded_where_the_kernel_has_no_scopes(neighbour: int) -> None:
    code = f"""
from weft_agent import mounts, seccomp
mounts.drop_privileges()
assert seccomp.deny(shielded=sandbox._others())
print(*(tried(os.kill, pid, 0) for pid in (os.getppid(), {neighbour}, -{neighbour}, -1, os.getpid())))
"""
    assert sandboxed(code, isolation="L0").stdout.split() == ["PermissionError"] * 4 + ["allowed"]


def test_a_filter_has_room_for_as_many_processes_as_are_shielded() -> None:
    for machine in seccomp.MACHINES:
        program = seccomp.program_for(machine, marked=MARKS, shielded=range(10, 10 + sandbox.MOST_SHIELDED))
        assert program is not None
        assert len(program) // 8 < 4096


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6"])
def test_it_cannot_listen(family: str) -> None:
    code = f"""
import socket
with socket.socket(socket.{family}) as ear:
    print(tried(ear.bind, ("{"127.0.0.1" if family == "AF_INET" else "::1"}", {_free_port()})), tried(ear.listen))
"""
    assert sandboxed(code).stdout.split() == ["PermissionError", "PermissionError"]
    assert sandboxed(code, isolation="L0").stdout.split() == ["allowed", "allowed"]


def test_no_named_socket_of_the_machine_can_be_reached() -> None:
    assert said("tried(__import__('socket').socket, 1)") == "PermissionError"
    assert said("len(__import__('socket').socketpair())") == 2


def test_it_connects_over_tls(tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    named = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    kept = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*made, *named, *kept], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    code = f"""
import socket, ssl
context = ssl.create_default_context(cafile="{certificate}")
context.load_default_certs()
with socket.create_connection(("127.0.0.1", PORT)) as plain:
    with context.wrap_socket(plain, server_hostname="localhost") as secure:
        print(secure.recv(100).decode())
"""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            plain, _ = server.accept()
            with context.wrap_socket(plain, server_side=True) as secure:
                secure.sendall(b"hello")

        answering = threading.Thread(target=answer)
        answering.start()
        ended = sandboxed(code.replace("PORT", str(server.getsockname()[1])), read=[certificate])
        answering.join()
    assert (ended.stdout.strip(), ended.stderr) == ("hello", "")


def test_a_list_of_ports_is_all_that_it_can_connect_to() -> None:
    with socket.create_server(("127.0.0.1", 0)) as allowed, socket.create_server(("127.0.0.1", 0)) as other:
        ports = [each.getsockname()[1] for each in (allowed, other)]
        act = f"[tried(__import__('socket').create_connection, ('127.0.0.1', port)) for port in {ports}]"
        assert said(act, limits={"ports": [ports[0]]}) == ["allowed", "PermissionError"]
        assert said(act) == ["allowed", "allowed"]


MADE = """
import socket
of_each = [(family, kind) for family in (socket.AF_INET, socket.AF_INET6) for kind in (1, 2)]
print(json.dumps([[tried(socket.socket, *each) for each in of_each], tried(socket.socketpair), REACHED.missing]))
"""


@pytest.mark.parametrize("landlock", [6, 2, 0])
def test_without_any_port_no_kernel_lets_it_have_a_socket_of_the_network(landlock: int) -> None:
    made, pair, missing = json.loads(sandboxed(MADE, limits={"ports": [], "landlock": landlock}).stdout)
    assert (made, pair) == (["PermissionError"] * 4, "allowed")
    assert sandbox.NO_PORTS not in missing


@pytest.mark.parametrize("landlock", [6, 2, 0])
def test_with_a_list_of_ports_it_has_no_datagrams_and_says_where_the_list_is_not_held(landlock: int) -> None:
    made, pair, missing = json.loads(sandboxed(MADE, limits={"ports": [443], "landlock": landlock}).stdout)
    assert (made, pair) == (["allowed", "PermissionError"] * 2, "allowed")
    assert (sandbox.NO_PORTS in missing) is (landlock != 6)


def test_names_are_resolved() -> None:
    assert said("__import__('socket').getaddrinfo('localhost', 80)[0][4][1]") == 80


def test_root_keeps_no_power_but_that_over_files() -> None:
    held = said("[line.split()[1] for line in open('/proc/self/status') if line.startswith('Cap')]")
    assert all(int(each, 16) & ~0b10 == 0 for each in held)
    assert said("[line.split()[1] for line in open('/proc/self/status') if line.startswith('NoNewPrivs')]") == ["1"]


def test_modules_threads_and_programs_work_as_ever() -> None:
    code = """
import asyncio, concurrent.futures, ctypes, hashlib, lxml.etree, sqlite3, subprocess, tempfile, zoneinfo
import scrapy
from twisted.internet import reactor
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    squares = list(pool.map(lambda number: number * number, range(4)))
async def child():
    process = await asyncio.create_subprocess_exec("echo", "hello", stdout=subprocess.PIPE)
    return (await process.communicate())[0].decode().strip()
print(json.dumps([squares, asyncio.run(child()), str(zoneinfo.ZoneInfo("Europe/Berlin"))]))
"""
    ended = sandboxed(code)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == [[0, 1, 4, 9], "hello", "Europe/Berlin"]


def test_this_kernel_has_landlock() -> None:
    assert landlock.version() >= landlock.SINCE_SCOPES


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
