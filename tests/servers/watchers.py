"""Servers that stand beside weft and keep nothing of it: nginx before gateways, Prometheus, a proxy for crawls."""

from tests.servers.certificate import self_signed
from tests.servers.kinds import says
from tests.servers.server import Kind, Server

NGINX_MAIN = """
daemon off;
worker_processes 1;
pid {directory}/pid;
error_log stderr info;
events {{ worker_connections 4096; }}
http {{
    access_log {directory}/access.log;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    include {directory}/site.conf;
}}
"""


def prepare_nginx(server: Server) -> None:
    """Write the site, with the port and the certificate of this server in the place of those that it names."""
    chain, key = self_signed(server.directory)
    site = server.settings["site"]
    for there, here in {
        "listen 443 ssl": f"listen 127.0.0.1:{server.port} ssl",
        "/etc/ssl/certs/weft.pem": str(chain),
        "/etc/ssl/private/weft.key": str(key),
    }.items():
        assert site.count(there) == 1, f"the site of nginx says {there!r} {site.count(there)} times"
        site = site.replace(there, here)
    (server.directory / "site.conf").write_text(site)
    (server.directory / "nginx.conf").write_text(NGINX_MAIN.format(directory=server.directory))
    server.own()


def nginx_command(server: Server) -> list[str]:
    place = ["-p", str(server.directory), "-e", "stderr", "-c", str(server.directory / "nginx.conf")]
    return [server.programs["nginx"], *place]


def nginx_answers(server: Server) -> bool:
    """Plain HTTP on a port for TLS is refused in so many words."""
    return says(server.port, b"GET / HTTP/1.0\r\n\r\n", b" 400 ")


NGINX = Kind(
    name="nginx",
    programs=("nginx",),
    account="www-data",
    url="https://localhost:{port}",
    settings={},
    prepare=prepare_nginx,
    command=nginx_command,
    answers=nginx_answers,
)


def prepare_prometheus(server: Server) -> None:
    """Write the configuration, with a place of this server's own for the key that it names."""
    there, configuration = "/etc/prometheus/weft.key", server.settings["configuration"]
    assert configuration.count(there) == 1, f"the configuration of Prometheus should name {there} once"
    here = server.directory / "weft.key"
    (server.directory / "prometheus.yml").write_text(configuration.replace(there, str(here)))
    here.write_text(server.settings["key"])
    here.chmod(0o600)
    server.own()


def prometheus_command(server: Server) -> list[str]:
    flags = {
        "config.file": str(server.directory / "prometheus.yml"),
        "storage.tsdb.path": str(server.data),
        "web.listen-address": f"127.0.0.1:{server.port}",
        "log.level": "warn",
    }
    return [server.programs["prometheus"], *(f"--{name}={value}" for name, value in flags.items())]


def prometheus_answers(server: Server) -> bool:
    return says(server.port, b"GET /-/ready HTTP/1.0\r\n\r\n", b" 200 ")


PROMETHEUS = Kind(
    name="prometheus",
    programs=("prometheus",),
    account="prometheus",
    url="http://127.0.0.1:{port}",
    settings={},
    prepare=prepare_prometheus,
    command=prometheus_command,
    answers=prometheus_answers,
)


TINYPROXY_CONFIGURATION = """
Port {port}
Listen 127.0.0.1
Bind {from_address}
BasicAuth {login}
Timeout 60
MaxClients 20
LogLevel Warning
"""


def prepare_tinyproxy(server: Server) -> None:
    configuration = TINYPROXY_CONFIGURATION.format(port=server.port, **server.settings)
    (server.directory / "tinyproxy.conf").write_text(configuration)


def tinyproxy_command(server: Server) -> list[str]:
    return [server.programs["tinyproxy"], "-d", "-c", str(server.directory / "tinyproxy.conf")]


def tinyproxy_answers(server: Server) -> bool:
    """Who does not say who it is gets 407."""
    return says(server.port, b"GET http://localhost/ HTTP/1.0\r\n\r\n", b" 407 ")


TINYPROXY = Kind(
    name="tinyproxy",
    programs=("tinyproxy",),
    url="http://127.0.0.1:{port}",
    settings={"login": "weft secret-of-tests", "from_address": "127.0.0.77"},
    prepare=prepare_tinyproxy,
    command=tinyproxy_command,
    answers=tinyproxy_answers,
)
