"""A process that writes rows, as another weft would: ``python -m tests.db.writer URL COUNT``."""

import asyncio
import sys

from tests.db.acting import write_next
from weft.db.database import open_database
from weft.db.migrate import migrate


async def main(url: str, count: int) -> None:
    db = open_database(url)
    migrate(db.engine)
    if sys.stdin.readline() != "go\n":
        raise SystemExit("there was no word to go")
    await asyncio.gather(*(db.transact(write_next) for _ in range(count)))
    db.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
