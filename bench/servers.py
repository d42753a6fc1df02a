"""The servers of one benchmark: throw-away, each started when first asked for and ended with the benchmark."""

from contextlib import ExitStack
from functools import cached_property

from tests import servers


class Servers(ExitStack):
    """One server of each kind, shared by all that are measured, so that nobody has a better one."""

    @cached_property
    def postgresql(self) -> servers.Server:
        """Safe settings: a commit is on disk when it is acknowledged."""
        return self.enter_context(servers.postgresql())

    @cached_property
    def mariadb(self) -> servers.Server:
        return self.enter_context(servers.mariadb())

    @cached_property
    def redis(self) -> servers.Server:
        """In memory only: it is where queues on Redis are fastest, and how most of them are run."""
        return self.enter_context(servers.redis(appendonly="no"))

    @cached_property
    def careful_redis(self) -> servers.Server:
        """Each change is on disk before it is acknowledged."""
        return self.enter_context(servers.redis())

    @cached_property
    def dynamodb(self) -> servers.Server:
        """A server in Python that speaks as DynamoDB does: it tells the cost for weft, not the speed of Amazon's."""
        return self.enter_context(servers.dynamodb())

    @cached_property
    def rabbitmq(self) -> servers.Server:
        return self.enter_context(servers.rabbitmq())
