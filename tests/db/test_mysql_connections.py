"""Connections to MariaDB: what costs much is done once."""

from weft.db.database import open_database


def test_connections_share_what_they_know_of_tls(mariadb_url: str) -> None:
    db = open_database(mariadb_url)
    with db.engine.connect() as one, db.engine.connect() as other:
        contexts = [each.connection.driver_connection.ctx for each in (one, other)]  # type: ignore[union-attr]
        assert contexts[0] is contexts[1]
    db.close()
