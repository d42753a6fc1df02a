"""Names are looked up in the sandbox, also where only some TCP ports are left: with a name server of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PATIENCE_SECONDS = 120
ALONE = """
import fcntl, json, os, socket, struct, subprocess, sys, threading
from weft.user_code import Launch, bare_environment, ports_of

asked = []

def answer(how, question):
    asked.append(how)
    end = question.index(b"\\0", 12) + 5
    is_ipv4 = question[end - 4 : end - 2] == b"\\0\\1"
    found = b"\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\x3c\\0\\4\\x7f\\1\\2\\3" if is_ipv4 else b""
    return question[:2] + struct.pack(">5H", 0x8180, 1, is_ipv4, 0, 0) + question[12:end] + found

def over_tcp(line):
    with line, line.makefile("rb") as file:
        while length := file.read(2):
            told = answer("tcp", file.read(struct.unpack(">H", length)[0]))
            line.sendall(struct.pack(">H", len(told)) + told)

def serve_tcp(server):
    while True:
        threading.Thread(target=over_tcp, args=(server.accept()[0],), daemon=True).start()

def serve_udp(server):
    while True:
        question, whom = server.recvfrom(4096)
        server.sendto(answer("udp", question), whom)

subprocess.run(["mount", "--bind", sys.argv[1], os.path.realpath("/etc/resolv.conf")], check=True)
datagrams = socket.socket(type=socket.SOCK_DGRAM)
fcntl.ioctl(datagrams, 0x8914, struct.pack("16sh14x", b"lo", 1))  # SIOCSIFFLAGS: this machine is up
datagrams.bind(("127.0.0.1", 53))
for serve, server in ((serve_tcp, socket.create_server(("127.0.0.1", 53))), (serve_udp, datagrams)):
    threading.Thread(target=serve, args=(server,), daemon=True).start()
LOOK = "import socket; print(socket.getaddrinfo('a.weft.test', 443, type=socket.SOCK_STREAM)[0][4][0])"
found = {}
for network in ("all", (443,), "none"):
    asked.clear()
    launch = Launch([sys.executable, "-I", "-c", LOOK], bare_environment(), ports=ports_of(network), tell=False)
    ended = subprocess.run(launch.argv, pass_fds=[launch.descriptor], capture_output=True, text=True, cwd="/")
    launch.close()
    found[str(network)] = [ended.stdout.strip(), sorted(set(asked))]
print(json.dumps(found))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have a network of its own")
def test_names_are_looked_up_over_tcp_where_only_ports_of_tcp_are_left(tmp_path: Path) -> None:
    named = tmp_path / "resolv.conf"
    named.write_text("nameserver 127.0.0.1\n")
    command = ["unshare", "--mount", "--net", sys.executable, "-c", ALONE, str(named)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert ended.returncode == 0, ended.stderr
    there = "127.1.2.3"
    assert json.loads(ended.stdout) == {"all": [there, ["udp"]], "(443,)": [there, ["tcp"]], "none": ["", []]}
