"""The pages of whoever runs weft: workers, webhooks, settings, and one's own account."""

from __future__ import annotations

from weft.web.pages import (
    about,
    account,
    settings,
    settings_audit,
    settings_keys,
    settings_secrets,
    settings_users,
    webhooks,
    workers,
)

PAGES = {
    **workers.PAGES,
    **webhooks.PAGES,
    **settings.PAGES,
    **settings_keys.PAGES,
    **settings_users.PAGES,
    **settings_secrets.PAGES,
    **settings_audit.PAGES,
    **about.PAGES,
    **account.PAGES,
}
