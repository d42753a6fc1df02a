"""Ways to take a PostgreSQL server away from its clients. Each returns when the server takes new connections again."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import replace

import psycopg

from tests.servers import Server

OTHERS = "FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
AWAY_SECONDS = 1.0
HELD_SECONDS = 2.0
INJECTED_SECONDS = 3.0

INJECT = """
CREATE FUNCTION quarrel() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF random() < 0.25 THEN
        RAISE EXCEPTION 'injected' USING ERRCODE = CASE WHEN random() < 0.5 THEN '40001' ELSE '40P01' END;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER quarrel BEFORE INSERT OR UPDATE ON runs FOR EACH STATEMENT EXECUTE FUNCTION quarrel()
"""

Meanwhile = Callable[[], None]
"""Called once while the server is away."""


def restart(server: Server, _: str, meanwhile: Meanwhile) -> None:
    """Shut it down as an administrator does: open transactions are rolled back, connections end."""
    server.stop()
    _start_later(server, meanwhile)


def restart_at_once(server: Server, _: str, meanwhile: Meanwhile) -> None:
    """Shut it down without a checkpoint, so that it recovers from its log."""
    gently = server.kind
    server.kind = replace(gently, stop_signal=signal.SIGQUIT)
    server.stop()
    server.kind = gently
    _start_later(server, meanwhile)


def kill(server: Server, _: str, meanwhile: Meanwhile) -> None:
    server.kill()
    _start_later(server, meanwhile)


def end_connections(server: Server, _: str, meanwhile: Meanwhile) -> None:
    """End every connection again and again, while the server stays."""
    meanwhile()
    with psycopg.connect(server.url, autocommit=True) as connection:
        for _round in range(5):
            connection.execute(f"SELECT pg_terminate_backend(pid) {OTHERS}")
            time.sleep(0.1)


def take_all_connections(server: Server, _: str, meanwhile: Meanwhile) -> None:
    """End the connections of others and take every place, so that nobody else gets in."""
    taken = [psycopg.connect(server.url, autocommit=True)]
    try:
        taken[0].execute(f"SELECT pg_terminate_backend(pid) {OTHERS}")
        deadline = time.monotonic() + HELD_SECONDS
        while time.monotonic() < deadline:
            try:
                taken.append(psycopg.connect(server.url))
            except psycopg.OperationalError:
                time.sleep(0.005)
        meanwhile()
    finally:
        for connection in taken:
            connection.close()


def quarrel(_: Server, url: str, meanwhile: Meanwhile) -> None:
    """Let a quarter of all writes to runs end as a deadlock or a serialization failure."""
    meanwhile()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(INJECT.encode())
        time.sleep(INJECTED_SECONDS)
        connection.execute("DROP TRIGGER quarrel ON runs; DROP FUNCTION quarrel()")


def connections(server: Server) -> int:
    """How many connections others have open."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        row = connection.execute(f"SELECT count(*) {OTHERS}").fetchone()
    return int(row[0]) if row else 0


def _start_later(server: Server, meanwhile: Meanwhile) -> None:
    time.sleep(AWAY_SECONDS)
    meanwhile()
    server.start()
