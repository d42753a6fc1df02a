"""A database that a test writes to, and the same one as another process has it open."""

from collections.abc import Iterator

import pytest

from tests import servers
from tests.conftest import running
from weft.db.database import Database, open_database


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    db = open_database(database_url)
    yield db
    db.close()


@pytest.fixture
def other(database_url: str) -> Iterator[Database]:
    db = open_database(database_url)
    yield db
    db.close()


@pytest.fixture(scope="module", params=["postgresql", "mariadb"])
def own_server(request: pytest.FixtureRequest) -> Iterator[servers.Server]:
    """A server that tests may kill."""
    yield from running(getattr(servers, request.param))
