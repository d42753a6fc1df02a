"""What is sealed opens only here, only as what it was sealed as, and outlives every change of the key."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cases import for_each
from weft.access.encryption import Encryptor
from weft.config import load
from weft.errors import Misconfigured, Unopened


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data" / "keys"


def test_what_was_sealed_is_opened_by_another_process_of_this_weft(file: Path) -> None:
    sealed = Encryptor(file).encrypt(b"canary", "shop/token")
    assert b"canary" not in sealed.sealed
    assert Encryptor(file).decrypt(*sealed, "shop/token") == b"canary"


def test_the_same_data_is_never_sealed_twice_alike(file: Path) -> None:
    encryptor = Encryptor(file)
    first, second = encryptor.encrypt(b"canary"), encryptor.encrypt(b"canary")
    assert first.key_id == second.key_id
    assert not {first.sealed, first.sealed_key} & {second.sealed, second.sealed_key}


def test_what_was_sealed_about_one_thing_is_not_opened_as_another(file: Path) -> None:
    encryptor = Encryptor(file)
    with pytest.raises(Unopened):
        encryptor.decrypt(*encryptor.encrypt(b"canary", "shop/token"), "bank/token")


@pytest.mark.parametrize("part", [1, 2])
def test_a_changed_byte_is_noticed(file: Path, part: int) -> None:
    encryptor = Encryptor(file)
    sealed: list[Any] = list(encryptor.encrypt(b"canary"))
    sealed[part] = sealed[part][:-1] + bytes([sealed[part][-1] ^ 1])
    with pytest.raises(Unopened):
        encryptor.decrypt(*sealed)


def test_no_key_is_made_before_something_is_sealed(file: Path) -> None:
    encryptor = Encryptor(file)
    assert not file.exists()
    encryptor.encrypt(b"canary")
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in file.parent.iterdir()] == ["keys"]


def test_processes_that_start_together_make_one_key(file: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        sealed = list(pool.map(lambda _: Encryptor(file).encrypt(b"canary"), range(16)))
    assert len(file.read_text().split()) == 1
    assert {Encryptor(file).decrypt(*each) for each in sealed} == {b"canary"}


def test_a_new_key_seals_from_now_on_and_the_old_one_still_opens(file: Path) -> None:
    encryptor, other = Encryptor(file), Encryptor(file)
    old = encryptor.encrypt(b"canary")
    assert other.newest() == old.key_id
    new_id = encryptor.make_key()
    assert new_id != old.key_id
    assert other.encrypt(b"x").key_id == new_id, "another process learns of it"
    assert encryptor.decrypt(*old) == b"canary"
    assert encryptor.decrypt(*encryptor.reencrypt(old.key_id, old.sealed_key), old.sealed) == b"canary"
    assert encryptor.reencrypt(old.key_id, old.sealed_key)[0] == new_id


def test_a_weft_without_the_key_says_which_one_it_needs(file: Path, tmp_path: Path) -> None:
    sealed = Encryptor(file).encrypt(b"canary")
    with pytest.raises(Unopened, match=sealed.key_id):
        Encryptor(tmp_path / "other").decrypt(*sealed)


def test_a_given_key_is_the_same_on_every_machine(tmp_path: Path) -> None:
    key, newer = secrets.token_hex(32), secrets.token_hex(32)
    sealed = Encryptor(tmp_path / "a", key).encrypt(b"canary")
    assert Encryptor(tmp_path / "b", f"{newer},{key}").decrypt(*sealed) == b"canary"
    assert Encryptor(tmp_path / "b", f"{newer}, {key}").newest() != sealed.key_id
    assert not list(tmp_path.iterdir())
    with pytest.raises(Misconfigured, match="put a new one before the old one"):
        Encryptor(tmp_path / "a", key).make_key()


@for_each("key", ["weft", "changeme", "8bytes!!", "0123456789" * 5, "changeme" * 8, "a" * 64])
def test_a_known_or_weak_key_stops_the_start_and_is_not_repeated(tmp_path: Path, key: str) -> None:
    with pytest.raises(Misconfigured, match="key 1 of secret_key must not be used") as problem:
        Encryptor(tmp_path / "keys", key)
    assert key not in str(problem.value).replace("secret_key", "").replace("openssl", "")


def test_a_file_of_keys_that_others_can_read_stops_the_start(file: Path) -> None:
    Encryptor(file).encrypt(b"canary")
    file.chmod(0o640)
    with pytest.raises(Misconfigured, match="chmod 600"):
        Encryptor(file)


def test_the_key_is_shown_as_dots(tmp_path: Path) -> None:
    key = secrets.token_hex(32)
    (tmp_path / "key").write_text(f"{key}\n")
    loaded = load(environment={"WEFT_SECRET_KEY_FILE": str(tmp_path / "key")})
    assert loaded.config.secret_key == key
    assert key not in repr(loaded.config)
    [setting] = [each for each in loaded.settings if each.name == "secret_key"]
    assert setting.shown == "••••"
