"""What is shown of a project's own settings."""

from __future__ import annotations

from typing import Any

from tests.cases import for_each
from weft.projects.checker import masked_settings
from weft.redaction import MASK


@for_each(
    "name",
    [
        "DB_PASSWORD",
        "MAIL_PASS",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "ZYTE_API_KEY",
        "CRAWLERA_APIKEY",
        "SECRET_TOKEN_OF_SHOP",
        "PROXY_AUTH",
        "SHOP_COOKIES",
        "azure-account-key",
        "GOOGLE_CREDENTIALS_JSON",
        "PRIVATE_KEY",
    ],
)
def test_a_value_whose_name_says_that_it_is_secret_is_masked(name: str) -> None:
    assert masked_settings({name: "hush-hush"}) == {name: MASK}
    assert masked_settings({name: 12345}) == {name: MASK}
    assert masked_settings({"SHOP": {name: "hush-hush", "size": 3}}) == {"SHOP": {name: MASK, "size": 3}}


@for_each(
    ("name", "value"),
    [
        ("COOKIES_ENABLED", False),
        ("DOWNLOAD_DELAY", 0.5),
        ("BOT_NAME", "shop"),
        ("AUTHOR", "ada"),
        ("REDIS_START_URLS_KEY", "%(name)s:start_urls"),
        ("ITEM_PIPELINES", {"shop.pipelines.TokenPipeline": 300}),
        ("API_KEY", None),
        ("PASSWORDS", []),
    ],
)
def test_what_is_no_secret_is_shown(name: str, value: Any) -> None:
    assert masked_settings({name: value}) == {name: value}


def test_passwords_in_addresses_and_headers_are_masked_wherever_they_are() -> None:
    given = {
        "MONGO_URI": "mongodb://me:hush-hush@db.example/x",
        "PROXIES": ["http://me:hush-hush@proxy.example:8080", "http://proxy.example"],
        "DEFAULT_REQUEST_HEADERS": {"Authorization": "Bearer abcdef123456", "Accept": "text/html"},
    }
    assert masked_settings(given) == {
        "MONGO_URI": f"mongodb://{MASK}@db.example/x",
        "PROXIES": [f"http://{MASK}@proxy.example:8080", "http://proxy.example"],
        "DEFAULT_REQUEST_HEADERS": {"Authorization": MASK, "Accept": "text/html"},
    }
