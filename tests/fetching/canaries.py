"""Run inside a network of its own: listens on closed addresses and tells who came, however they were led there."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter

from tests.fetching.raw_server import page
from weft.address_guard import Guard
from weft.fetching.egress import Egress
from weft.fetching.model import FetchError, FetchRequest

ADDRESSES = [
    *("10.1.2.3", "100.64.1.1", "100.100.100.200", "169.254.169.254", "172.16.1.1", "192.0.0.192", "192.168.1.1"),
    *("198.18.0.1", "203.0.113.1", "168.63.129.16", "fd00:ec2::254", "fc00::1", "2001:db8::1"),
    *("64:ff9b::a9fe:a9fe", "64:ff9b:1::7f00:1", "2002:7f00:1::1", "2001:0:7f00:1::1", "2600::5efe:a00:1"),
]
BY_THEMSELVES = ["127.0.0.1", "127.9.9.9", "0.0.0.0", "::1", "::ffff:7f00:1", "::ffff:a01:203"]  # noqa: S104
"""Addresses that every machine has."""
SITE = "198.51.100.1"
"""Which is allowed, and redirects."""
PORT = 8080


class Names:
    """Whatever is asked for is at the address that its first label spells."""

    async def resolve(self, host: str, port: int) -> list[str]:
        return [bytes.fromhex(host.partition(".")[0].removeprefix("x")).decode()]


def urls(address: str) -> list[str]:
    """The address itself, a name that leads there, and a page that redirects there."""
    shown = f"[{address}]" if ":" in address else address
    spelled = address.encode().hex()
    return [
        f"http://{shown}:{PORT}/",
        f"https://{shown}:{PORT}/",
        f"http://x{spelled}.example:{PORT}/",
        f"http://{SITE}:{PORT}/to/{spelled}",
    ]


async def main() -> None:
    for address in (*ADDRESSES, SITE):
        prefix = 128 if ":" in address else 32
        subprocess.run(
            ["ip", "address", "add", f"{address}/{prefix}", "dev", "lo", *(["nodad"] * (prefix == 128))], check=True
        )
    heard: Counter[str] = Counter()

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard[writer.get_extra_info("sockname")[0].removeprefix("::ffff:")] += 1
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            to = bytes.fromhex(head.split(b" ")[1].decode().removeprefix("/to/").strip("/")).decode()
            location = f"Location: http://{f'[{to}]' if ':' in to else to}:{PORT}/".encode()
            writer.write(page(b"", location, status=b"302 Found") if to else page(b"canary"))
        except (ValueError, OSError, asyncio.IncompleteReadError):
            pass
        writer.close()

    told = {}
    async with await asyncio.start_server(hear, None, PORT):
        for name, ways, allowed in (("guarded", 4, [SITE]), ("open", 1, ["0.0.0.0/0", "::/0", *ADDRESSES])):
            heard.clear()
            kinds = await reach(Guard(allowed), ways)
            told[name] = {"heard": {key: count for key, count in heard.items() if key != SITE}, "kinds": kinds}
    json.dump(told, sys.stdout)


async def reach(guard: Guard, ways: int) -> Counter[str]:
    """Try so many ways to every address; return how often it ended in which way."""
    egress = Egress(guard, user_agent="weft-tests", verify_tls=False, resolver=Names())
    kinds: Counter[str] = Counter()
    for address in (*ADDRESSES, *BY_THEMSELVES):
        for url in urls(address)[:ways]:
            try:
                await egress.fetch_following(FetchRequest(url=url, deadline_seconds=5), redirects=3)
                kinds["answered"] += 1
            except FetchError as problem:
                kinds[problem.kind] += 1
    await egress.close()
    return kinds


if __name__ == "__main__":
    asyncio.run(main())
