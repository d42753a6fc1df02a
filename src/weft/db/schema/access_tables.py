"""Users, keys, sessions, secrets, and who did what."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Index, Integer, PrimaryKeyConstraint, String, Text

from weft.db.schema.columns import Blob, Id, Json, Moment, Name, table

users = table(
    "users",
    Column("id", Id, primary_key=True),
    Column("name", Name, nullable=False, unique=True),
    Column("password", String(200), nullable=False),
    Column("active", Boolean, nullable=False),
    Column("created_at", Moment, nullable=False),
    reuses_ids=False,  # nor that of a user or a key: grants stand for it
)

api_keys = table(
    "api_keys",  # of programs, of workers, and those that are good for making one worker key
    Column("id", Id, primary_key=True),
    Column("kind", String(10), nullable=False),
    Column("prefix", String(20), nullable=False, unique=True),
    Column("digest", String(64), nullable=False),
    Column("name", Name, nullable=False),
    Column("created_by", Name, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("expires_at", Moment),
    Column("last_used_at", Moment),
    Column("revoked_at", Moment),
    Column("labels", Json),  # those that its worker may claim; NULL for any
    Column("public_key", String(44)),  # of a service that signs its own tokens instead of sending a secret
    reuses_ids=False,
)

grants = table(
    "grants",  # the role of a user or key in a project, or in all of them ("*")
    Column("kind", String(10)),
    Column("subject_id", Id),
    Column("project", Name),
    Column("role", String(12), nullable=False),
    PrimaryKeyConstraint("kind", "subject_id", "project"),
)

sessions = table(
    "sessions",  # of people in a browser; the id itself is known only to the browser
    Column("digest", String(64), primary_key=True),
    Column("user_id", Id, nullable=False),
    Column("csrf", String(64), nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("seen_at", Moment, nullable=False),
    Column("address", String(64), nullable=False),
    Column("agent", String(200), nullable=False),
    Index("sessions_by_user", "user_id"),
)

login_failures = table(
    "login_failures",  # for a while, so that passwords cannot be tried one after another
    Column("subject", String(200), primary_key=True),
    Column("failures", Integer, nullable=False),
    Column("blocked_until", Moment, nullable=False),
    Column("at", Moment, nullable=False),
)

secrets = table(
    "secrets",  # sealed with a key of their own, which is sealed with the key of this weft
    Column("project", Name),
    Column("name", Name),
    Column("key_id", String(40), nullable=False),
    Column("sealed_key", Blob, nullable=False),
    Column("sealed", Blob, nullable=False),
    Column("updated_at", Moment, nullable=False),
    Column("updated_by", Name, nullable=False),
    PrimaryKeyConstraint("project", "name"),
)

audit = table(
    "audit",  # what people and programs did; each row carries the digest of the one before it
    Column("id", Id, primary_key=True, autoincrement=False),
    Column("at", Moment, nullable=False),
    Column("actor", String(120), nullable=False),
    Column("address", String(64), nullable=False),
    Column("action", String(60), nullable=False),
    Column("project", Name, nullable=False),
    Column("target", String(250), nullable=False),
    Column("data", Json),
    Column("previous", String(64), nullable=False),
    Column("digest", String(64), nullable=False),
    Index("audit_by_project", "project", "id"),
    Index("audit_by_actor", "actor", "id"),
)

guest_links = table(
    "guest_links",  # links by which guests see a project, or one dataset of it, until they are revoked
    Column("id", Id, primary_key=True),
    Column("digest", String(64), nullable=False),  # of the token, which only the link has
    Column("project", Name, nullable=False),
    Column("dataset", Name),  # NULL: the whole project
    Column("label", String(200), nullable=False),
    Column("created_by", Name, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("expires_at", Moment),
    Column("revoked_at", Moment),
    Column("used_at", Moment),
    Index("guest_links_by_digest", "digest", unique=True),
    Index("guest_links_by_project", "project"),
    reuses_ids=False,
)

views = table(
    "views",  # filters of a list that somebody has given a name, for all
    Column("id", Id, primary_key=True),
    Column("page", String(40), nullable=False),
    Column("name", Name, nullable=False),
    Column("query", Text, nullable=False),
    Column("created_by", Name, nullable=False),
    Column("created_at", Moment, nullable=False),
    Index("views_by_name", "page", "name", unique=True),
    reuses_ids=False,
)
