"""The first start: an admin whose password is shown once, to whoever starts weft."""

from __future__ import annotations

from weft.app import App

WORDS = """
The first user of this weft, who may do everything:

    name      admin
    password  {password}

It is shown this once. `weft users password admin` sets another.
"""


async def welcome(app: App) -> None:
    """Make the first admin where there is no user, and show its password where nobody chose it.

    It is printed on standard output, which a supervised process shares with its supervisor; log lines go elsewhere.
    """
    password = await app.users.create_first(app.config.admin_password)
    if password is not None:
        print(WORDS.format(password=password), flush=True)
