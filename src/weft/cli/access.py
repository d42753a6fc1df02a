"""Users, API keys, guest links and the audit log: ``weft users``, ``keys``, ``guest-links`` and ``audit``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.options import WeftCommand, WeftGroup, options_of, whole
from weft.cli.output import ago, answer, none_of, shown, table
from weft.cli.session import ask
from weft.clock import iso, now, seconds
from weft.errors import NOT_SHOWN, Invalid

if TYPE_CHECKING:
    from weft.access.audit import AuditEntry
    from weft.access.model import Grants, GuestLink, Key, User
    from weft.app import App

RoleOption = Annotated[
    str | None, typer.Option("--role", metavar="ROLE", help="viewer, operator, developer or admin, in --project.")
]
EverywhereOption = Annotated[bool, typer.Option("--everywhere", help="The role counts in all projects.")]
GrantOption = Annotated[
    list[str] | None, typer.Option("--grant", metavar="PROJECT=ROLE", help="One more role; may be repeated.")
]
PasswordFileOption = Annotated[
    Path | None, typer.Option("--password-file", metavar="FILE", help="A file with the password, instead of a prompt.")
]
GenerateOption = Annotated[bool, typer.Option("--generate", help="Generate a password and show it once.")]


def grants_of(context: Any, role: str | None, everywhere: bool, more: Sequence[str] | None) -> Grants:
    """The role in the project that was named, and whatever else was granted."""
    from weft.access.model import EVERYWHERE, role_of

    project = options_of(context).project
    if role is not None and (project is None) != everywhere:
        raise Invalid("--role", role, "it must be given with either --project or --everywhere")
    if role is None and everywhere:
        raise Invalid("--everywhere", NOT_SHOWN, "it needs a --role")
    found = {} if role is None else {EVERYWHERE if everywhere else str(project): role_of(role)}
    for each in more or ():
        place, equals, name = each.rpartition("=")
        if not equals or not place:
            raise Invalid("--grant", each, "it must be PROJECT=ROLE; *=ROLE for all projects")
        found[place] = role_of(name)
    return found


def is_visible(context: Any, grants: Grants) -> bool:
    """Whether roles count in the project that lists are to show."""
    project = options_of(context).project
    return project is None or bool({project, "*"} & grants.keys())


def shown_grants(grants: Grants) -> tuple[str, ...]:
    """Each role and where it counts: operator in shop, viewer everywhere."""
    from weft.access.model import EVERYWHERE

    return tuple(
        f"{role.label} everywhere" if place == EVERYWHERE else f"{role.label} in {place}"
        for place, role in sorted(grants.items())
    )


def password_from(file: Path | None, name: str, *, generated: bool = False) -> str:
    """The password of a user: from a file, made up, or typed twice at a terminal."""
    from weft.access import passwords

    if generated:
        if file is not None:
            raise Invalid("--generate", NOT_SHOWN, "it must be left out where --password-file is given")
        return passwords.generate()
    if file is not None:
        return _file_content(file)
    if not sys.stdin.isatty():
        raise Invalid("password", NOT_SHOWN, "it must be typed at a terminal, or come from --password-file")
    return _typed_password(name)


def _typed_password(name: str) -> str:
    from getpass import getpass  # it asks once nothing is shown any more; what is typed early is not seen either

    password = getpass(f"New password of {name}: ")
    if getpass("The same again: ") != password:
        raise Invalid("password", NOT_SHOWN, "it must be the same both times")
    return password


def _file_content(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is not text"
        raise Invalid("--password-file", str(file), f"it must be a file that can be read ({why})") from problem


users_app = typer.Typer(cls=WeftGroup, no_args_is_help=True, add_completion=False, help="Manage users.")

USER_HEADINGS = ("USER", "STATE", "MADE", "MAY DO")
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of a user.")]


@users_app.command("list", cls=WeftCommand)
def list_users(context: typer.Context) -> None:
    """List users and their roles."""
    from weft.access.model import user_document

    users = [each for each in ask(context, lambda weft: weft.users.all()) if is_visible(context, each.grants)]
    empty = none_of("users", [options_of(context).project], "there is no user; `weft users create` makes one")
    answer(
        context,
        [user_document(each) for each in users],
        lambda: table(USER_HEADINGS, map(_user_row, users), empty=empty),
    )


@users_app.command("create", cls=WeftCommand)
def create_user(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The login name; stored in lower case.")],
    role: RoleOption = None,
    everywhere: EverywhereOption = False,
    grant: GrantOption = None,
    password_file: PasswordFileOption = None,
    generate: GenerateOption = False,
) -> None:
    """Create a user. The password is prompted for; it is never on the command line."""
    from weft.access.model import user_document

    grants = grants_of(context, role, everywhere, grant)
    password = password_from(password_file, name, generated=generate)
    user = ask(context, lambda weft: weft.users.create(name, password, grants), changes=True)
    told = {"user": user_document(user), "password": password if generate else None}
    answer(
        context,
        told,
        lambda: f"user {user.name} is made: {_user_roles(user)}{_show_password_once(password) if generate else ''}",
    )


@users_app.command("password", cls=WeftCommand)
def set_password(
    context: typer.Context,
    name: NameArgument,
    password_file: PasswordFileOption = None,
    generate: GenerateOption = False,
) -> None:
    """Change the password of a user; all sessions of the user end."""
    from weft.access.model import user_document

    new = password_from(password_file, name, generated=generate)
    user = ask(context, lambda weft: weft.users.set_password(name, new), changes=True)
    told = {"user": user_document(user), "password": new if generate else None}
    answer(
        context, told, lambda: f"user {user.name} has another password{_show_password_once(new) if generate else ''}"
    )


@users_app.command("grant", cls=WeftCommand)
def grant_roles(
    context: typer.Context,
    name: NameArgument,
    role: RoleOption = None,
    everywhere: EverywhereOption = False,
    grant: GrantOption = None,
) -> None:
    """Set the roles of a user, replacing all others; with none given, the user has none."""
    grants = grants_of(context, role, everywhere, grant)
    _report_user(context, ask(context, lambda weft: weft.users.grant(name, grants), changes=True))


@users_app.command("deactivate", cls=WeftCommand)
def deactivate_user(context: typer.Context, name: NameArgument) -> None:
    """Deactivate a user: all sessions end, and API keys that the user created are revoked."""
    _report_user(context, ask(context, lambda weft: weft.users.deactivate(name), changes=True))


@users_app.command("activate", cls=WeftCommand)
def activate_user(context: typer.Context, name: NameArgument) -> None:
    """Activate a user again; revoked API keys stay revoked."""
    _report_user(context, ask(context, lambda weft: weft.users.activate(name), changes=True))


def _report_user(context: typer.Context, user: User) -> None:
    from weft.access.model import user_document

    state = "may log in" if user.active else "may not log in"
    answer(context, user_document(user), lambda: f"user {user.name} {state}: {_user_roles(user)}")


def _user_row(user: User) -> tuple[object, ...]:
    return (user.name, "ok" if user.active else "deactivated", ago(user.created_at), shown_grants(user.grants))


def _user_roles(user: User) -> str:
    return shown(shown_grants(user.grants)) if user.grants else "no role anywhere"


def _show_password_once(password: str) -> str:
    return f"\npassword, shown this once: {password}"


keys_app = typer.Typer(cls=WeftGroup, no_args_is_help=True, add_completion=False, help="Manage API keys.")

KEY_HEADINGS = ("KEY", "NAME", "STATE", "KIND", "MADE BY", "LAST USED", "EXPIRES", "MAY DO")
MAKER = "command line"
"""No user can have this name, so no user's leave revokes these keys."""

DAY = 86_400


@keys_app.command("list", cls=WeftCommand)
def list_keys(context: typer.Context) -> None:
    """List API keys, their roles, and when they were last used."""
    from weft.access.model import key_document

    keys = [each for each in ask(context, lambda weft: weft.keys.all()) if is_visible(context, each.grants)]
    empty = none_of("keys", [options_of(context).project], "there is no key; `weft keys create` makes one")
    answer(
        context, [key_document(each) for each in keys], lambda: table(KEY_HEADINGS, map(_key_row, keys), empty=empty)
    )


@keys_app.command("create", cls=WeftCommand)
def create_key(
    context: typer.Context,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Its name; default: its roles.")] = None,
    role: RoleOption = None,
    everywhere: EverywhereOption = False,
    grant: GrantOption = None,
    expires_days: Annotated[
        int | None,
        typer.Option(metavar="N", parser=whole("--expires-days", 1, 3650), help="Expires after this many days."),
    ] = None,
    public_key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The public key (Ed25519) of the service that signs tokens instead."),
    ] = None,
) -> None:
    """Create an API key. Its token is shown only once."""
    from weft.access.model import key_document

    grants = grants_of(context, role, everywhere, grant)
    if not grants:
        raise Invalid("--role", NOT_SHOWN, "a key needs a --role in a --project, or --everywhere, or a --grant")
    expires_at = None if expires_days is None else now() + seconds(expires_days * DAY)
    public_key = None if public_key_file is None else _find_key(public_key_file)
    key, token = ask(
        context,
        lambda weft: weft.keys.create(
            name or _key_name(grants), grants, by=MAKER, expires_at=expires_at, public_key=public_key
        ),
        changes=True,
    )
    told = {"key": key_document(key), "token": token}
    shown_once = f"token, shown this once: {token}" if token else f"sign tokens with kid, iss and sub {key.prefix}"
    answer(context, told, lambda: f"key {key.id} is made: {_key_roles(key)}\n{shown_once}")


@keys_app.command("revoke", cls=WeftCommand)
def revoke_key(
    context: typer.Context,
    key_id: Annotated[
        int, typer.Argument(metavar="KEY", parser=whole("the number of a key", 1, 2**63 - 1), help="Its number.")
    ],
) -> None:
    """Revoke an API key, for good; within a second it is refused everywhere."""
    from weft.access.model import key_document

    key = ask(context, lambda weft: weft.keys.revoke(key_id), changes=True)
    answer(context, key_document(key), lambda: f"key {key.id} ({shown(key.name)}) is revoked")


def _find_key(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as problem:
        raise Invalid("--public-key-file", str(file), f"it must be a file with a public key ({problem})") from problem


def _key_name(grants: Grants) -> str:
    return ", ".join(shown_grants(grants))[:100]


def _key_row(key: Key) -> tuple[object, ...]:
    used, expires = ago(key.last_used_at), ago(key.expires_at)
    return (key.id, key.name, _key_state(key), key.kind, key.created_by, used, expires, shown_grants(key.grants))


def _key_state(key: Key) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "ok" if key.is_valid(now()) else "expired"


def _key_roles(key: Key) -> str:
    until = "" if key.expires_at is None else f", expires {ago(key.expires_at)}"
    return f"{shown(shown_grants(key.grants))}{until}"


guest_links_app = typer.Typer(
    cls=WeftGroup, no_args_is_help=True, add_completion=False, help="Manage guest links to a project."
)

GUEST_LINK_HEADINGS = ("LINK", "FOR", "STATE", "PROJECT", "SHOWS", "MADE BY", "LAST USED", "EXPIRES")
MOST_GUEST_LINKS = 500


@guest_links_app.command("list", cls=WeftCommand)
def list_guest_links(context: typer.Context) -> None:
    """List guest links, newest first; with `--project` those to it."""
    from weft.access.model import guest_link_document

    project = options_of(context).project
    within = None if project is None else [project]
    guest_links = ask(context, lambda weft: weft.guest_links.page(within, limit=MOST_GUEST_LINKS))
    empty = none_of("links", [project], "there is no link for guests; `weft guest-links create` makes one")
    answer(
        context,
        [guest_link_document(each) for each in guest_links],
        lambda: table(GUEST_LINK_HEADINGS, map(_guest_link_row, guest_links), empty=empty),
    )


@guest_links_app.command("create", cls=WeftCommand)
def create_guest_link(
    context: typer.Context,
    label: Annotated[str, typer.Option("--for", metavar="TEXT", help="A note: for whom or what it is.")],
    only_dataset: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this dataset; default: the whole project.")
    ] = None,
    expires_days: Annotated[
        int | None,
        typer.Option(metavar="N", parser=whole("--expires-days", 1, 3650), help="Expires after this many days."),
    ] = None,
) -> None:
    """Create a guest link to `--project`. It is shown only once."""
    from weft.access.model import guest_link_document, guest_link_path

    project = options_of(context).project
    if project is None:
        raise Invalid("--project", NOT_SHOWN, "it must name the project that guests are to see")
    expires_at = None if expires_days is None else now() + seconds(expires_days * DAY)

    async def work(weft: App) -> tuple[GuestLink, str]:
        if only_dataset is not None:
            await weft.datasets.get(project, only_dataset)
        return await weft.guest_links.create(
            project, label=label, by=MAKER, dataset=only_dataset, expires_at=expires_at
        )

    guest_link, token = ask(context, work, changes=True)
    told = {"guest_link": guest_link_document(guest_link), "token": token, "path": guest_link_path(token)}
    answer(
        context,
        told,
        lambda: (
            f"link {guest_link.id} is made: {shown(_shown_in_link(guest_link))}\n"
            f"below weft's address, shown this once: {guest_link_path(token)}"
        ),
    )


@guest_links_app.command("revoke", cls=WeftCommand)
def revoke_guest_link(
    context: typer.Context,
    guest_link_id: Annotated[
        int, typer.Argument(metavar="LINK", parser=whole("the number of a link", 1, 2**63 - 1), help="Its number.")
    ],
) -> None:
    """Revoke a guest link, for good."""
    from weft.access.model import guest_link_document

    guest_link = ask(context, lambda weft: weft.guest_links.revoke(guest_link_id), changes=True)
    answer(
        context, guest_link_document(guest_link), lambda: f"link {guest_link.id} ({shown(guest_link.label)}) is revoked"
    )


def _guest_link_row(guest_link: GuestLink) -> tuple[object, ...]:
    used, expires = ago(guest_link.used_at), ago(guest_link.expires_at)
    shows = guest_link.dataset or "everything"
    return (
        guest_link.id,
        guest_link.label,
        _guest_link_state(guest_link),
        guest_link.project,
        shows,
        guest_link.created_by,
        used,
        expires,
    )


def _guest_link_state(guest_link: GuestLink) -> str:
    if guest_link.revoked_at is not None:
        return "revoked"
    return "open" if guest_link.is_valid(now()) else "expired"


def _shown_in_link(guest_link: GuestLink) -> str:
    what = (
        f"project {guest_link.project}"
        if guest_link.dataset is None
        else f"dataset {guest_link.project}/{guest_link.dataset}"
    )
    until = "" if guest_link.expires_at is None else f", expires {ago(guest_link.expires_at)}"
    return f"{what}{until}"


audit_app = typer.Typer(
    cls=WeftGroup, no_args_is_help=True, add_completion=False, help="Read, export and verify the audit log."
)

AUDIT_HEADINGS = ("ENTRY", "WHEN", "WHO", "FROM", "WHAT", "PROJECT", "TARGET")
AUDIT_FIELDS = ("id", "at", "actor", "address", "action", "project", "target", "data", "previous", "digest")

audit_entry_number = whole("the number of an entry", 1, 2**63 - 1)


@audit_app.command("list", cls=WeftCommand)
def list_audit_entries(
    context: typer.Context,
    actor: Annotated[
        str | None, typer.Option(metavar="WHO", help="Only actions of this user or key, such as user:ada.")
    ] = None,
    action: Annotated[str | None, typer.Option(metavar="NAME", help="Only this, such as runs.cancel.")] = None,
    refused: Annotated[
        bool | None, typer.Option("--refused/--not-refused", help="Only denied requests, or only the rest.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", parser=whole("--limit", 1, 10_000), help="How many at most.")] = 50,
    before: Annotated[
        int | None, typer.Option(metavar="ID", parser=audit_entry_number, help="Only older ones than this ID.")
    ] = None,
) -> None:
    """List changes and who made them, newest first."""
    where = {"actor": actor, "action": action, "project": options_of(context).project}
    wanted = {name: value for name, value in where.items() if value is not None}
    found = ask(context, lambda weft: weft.audit.find(wanted, before=before, refused=refused, limit=limit))
    empty = none_of("entries", [before, refused, *wanted.values()], "nothing yet")
    answer(
        context,
        [_audit_document(each) for each in found],
        lambda: table(AUDIT_HEADINGS, map(_audit_row, found), empty=empty),
    )


@audit_app.command("export", cls=WeftCommand)
def export_audit(context: typer.Context) -> None:
    """Export the audit log as JSON lines, oldest first, with the digests that chain the entries."""

    async def write(weft: App) -> None:
        async for entry in weft.audit.every():
            print(json.dumps(_audit_document(entry)))

    ask(context, write)


@audit_app.command("verify", cls=WeftCommand)
def verify_audit(context: typer.Context) -> None:
    """Verify the chain of digests and name the first entry that was tampered with."""
    found = ask(context, lambda weft: weft.audit.verify())
    document = {"entries": found.entries, "digest": found.digest, "broken": found.broken, "why": found.why}
    good = f"{found.entries} entries are as they were written; the last has digest {found.digest}"
    bad = f"entry {found.broken} is broken: {found.why}; the {found.entries} before it are as they were written"
    answer(context, document, lambda: good if found.broken is None else bad)
    if found.broken is not None:
        raise typer.Exit(1)


def _audit_row(entry: AuditEntry) -> tuple[object, ...]:
    action = f"{entry.action} (refused)" if (_audit_data(entry) or {}).get("refused") else entry.action
    return (entry.id, ago(entry.at), entry.actor, entry.address, action, entry.project, entry.target)


def _audit_document(entry: AuditEntry) -> dict[str, Any]:
    fields: dict[str, Any] = {name: getattr(entry, name) for name in AUDIT_FIELDS}
    return fields | {"at": iso(entry.at), "data": _audit_data(entry)}


def _audit_data(entry: AuditEntry) -> dict[str, Any] | None:
    found: dict[str, Any] | None = None if entry.data is None else json.loads(entry.data)
    return found
