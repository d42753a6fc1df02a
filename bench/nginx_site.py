"""The site of ``site.py`` as files, served by nginx on many loopback addresses."""

import gzip
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from bench.site import Site
from tests.servers.server import free_port

START_SECONDS = 20.0
ROBOTS = "User-agent: *\nAllow: /\n"

CONF = """\
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  log_format times '$msec $server_addr $request_uri $status'; access_log {log}; keepalive_requests 1000000;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi; sendfile on; tcp_nopush on; default_type text/html;
  server {{ {listens} root {folder}/$server_addr; gzip_static always; gunzip on; rewrite ^/$ /start; }}
}}
"""


class NginxSite:
    """A site that is being served."""

    def __init__(self, site: Site, log: Path, pid: int) -> None:
        self.site, self.log, self.pid = site, log, pid

    @property
    def seeds(self) -> list[str]:
        return self.site.seeds()


@contextmanager
def nginx_site(pages: int, hosts: int, *, logged: bool = False, robots: str = ROBOTS) -> Iterator[NginxSite]:
    """The site, for as long as it is needed; with a log of when each request came where that is asked for."""
    with tempfile.TemporaryDirectory(prefix="weft-site-") as directory:
        folder, site = Path(directory), Site(pages=pages, hosts=hosts, port=free_port())
        folder.chmod(0o755)  # the workers of nginx are nobody
        write(folder, site, robots)
        log = folder / "access.log"
        listens = " ".join(f"listen {address}:{site.port};" for address in site.addresses)
        conf = CONF.format(folder=folder, log=f"{log} times" if logged else "off", listens=listens)
        (folder / "nginx.conf").write_text(conf)
        program = shutil.which("nginx") or "/usr/sbin/nginx"
        nginx = subprocess.Popen([program, "-p", directory, "-e", "stderr", "-c", str(folder / "nginx.conf")])
        try:
            _wait(f"{site.seeds()[0]}robots.txt")
            yield NginxSite(site, log, nginx.pid)
        finally:
            nginx.terminate()
            nginx.wait()


def write(folder: Path, site: Site, robots: str) -> None:
    for host, address in enumerate(site.addresses):
        (folder / address).mkdir()
        (folder / address / "robots.txt.gz").write_bytes(gzip.compress(robots.encode()))
        for page in range(site.per_host):
            (folder / address / f"{page or 'start'}.gz").write_bytes(site.packed(host, page))


def _wait(address: str) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            urlopen(address).read()  # noqa: S310 - our own
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
