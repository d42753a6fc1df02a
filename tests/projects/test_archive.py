"""Archives that are not what they seem: each is refused with one sentence, and nothing is left of it."""

from __future__ import annotations

import bz2
import dataclasses
import gzip
import io
import random
import stat
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cases import for_each
from tests.projects.making import project, tarred, zipped
from weft.errors import Invalid
from weft.projects.archive import unpack
from weft.projects.model import ArchiveLimits

SMALL = ArchiveLimits(archive_bytes=2_000_000, entries=50, inflated_bytes=30_000_000, ratio=20)


def refusal(tmp_path: Path, data: bytes, limits: ArchiveLimits = SMALL) -> str:
    """What is said of an archive that is refused. Nothing may be left."""
    file = tmp_path / "archive"
    file.write_bytes(data)
    place = tmp_path / "place"
    with pytest.raises(Invalid) as problem:
        unpack(file, place / "code", limits)
    assert list(place.glob("*")) == []
    return str(problem.value)


def unpacked(tmp_path: Path, data: bytes, limits: ArchiveLimits = SMALL) -> Path:
    file = tmp_path / "archive"
    tmp_path.mkdir(exist_ok=True)
    file.write_bytes(data)
    unpack(file, tmp_path / "code", limits)
    return tmp_path / "code"


def content(folder: Path) -> dict[str, str]:
    return {each.relative_to(folder).as_posix(): each.read_text() for each in folder.rglob("*") if each.is_file()}


@pytest.mark.parametrize(
    "make",
    [zipped, tarred, lambda files: tarred(files, "w:bz2"), lambda files: tarred(files, "w")],
    ids=["zip", "tar.gz", "tar.bz2", "tar"],
)
def test_what_was_packed_is_what_is_unpacked(tmp_path: Path, make: Callable[[dict[str, str]], bytes]) -> None:
    folder = unpacked(tmp_path, make(project()))
    assert content(folder) == project()
    assert {each.name for each in tmp_path.iterdir()} == {"archive", "code"}


def test_a_folder_that_is_already_there_stays_as_it_is(tmp_path: Path) -> None:
    folder = unpacked(tmp_path, zipped({"a.py": "1"}))
    assert content(unpacked(tmp_path, zipped({"b.py": "2"}))) == content(folder) == {"a.py": "1"}


NAMES = ["../evil.py", "a/../../evil.py", "/etc/evil", "C:/evil.py", "C:evil.py", "..\\evil.py", "a//b.py", "a/./b.py",
         "..", "a\nb.py", "x" * 250, "/".join("d" * 60), "\x1b[31mred.py"]  # fmt: skip


@for_each("name", NAMES)
@for_each("make", [zipped, tarred], ids=["zip", "tar"])
def test_a_name_that_leads_elsewhere_is_refused(
    tmp_path: Path, name: str, make: Callable[[dict[str, str]], bytes]
) -> None:
    assert "the name of an entry is" in refusal(tmp_path, make({"good.py": "", name: "evil"}))
    assert not (tmp_path / "evil.py").exists()


def test_a_name_that_ends_early_is_not_cut(tmp_path: Path) -> None:
    data = zipped({"goodXpy": ""}).replace(b"goodXpy", b"good\0py")
    assert "it must be printable" in refusal(tmp_path, data)


KINDS = {"link": stat.S_IFLNK, "device": stat.S_IFCHR, "pipe": stat.S_IFIFO, "socket": stat.S_IFSOCK}


@pytest.mark.parametrize("kind", KINDS)
def test_only_files_and_folders_are_taken_from_a_zip(tmp_path: Path, kind: str) -> None:
    buffer, info = io.BytesIO(), zipfile.ZipInfo("passwd")
    info.external_attr, info.create_system = (KINDS[kind] | 0o777) << 16, 3
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(info, "/etc/passwd")
    assert "'passwd' is a link or a device" in refusal(tmp_path, buffer.getvalue())


TYPES = {
    "link": tarfile.SYMTYPE, "hard link": tarfile.LNKTYPE, "device": tarfile.CHRTYPE, "disk": tarfile.BLKTYPE,
    "pipe": tarfile.FIFOTYPE, "sparse file": tarfile.GNUTYPE_SPARSE,
}  # fmt: skip


@for_each("kind", TYPES)
def test_only_files_and_folders_are_taken_from_a_tar(tmp_path: Path, kind: str) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo("passwd")
        member.type, member.linkname = TYPES[kind], "/etc/passwd"
        archive.addfile(member)
    why = "it has a file with holes in it" if kind == "sparse file" else "is a link or a device"
    assert why in refusal(tmp_path, buffer.getvalue())


def test_a_file_below_a_link_of_the_same_archive_is_not_written(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo("out")
        member.type, member.linkname = tarfile.SYMTYPE, str(tmp_path)
        archive.addfile(member)
        archive.addfile(tarfile.TarInfo("out/evil.py"), io.BytesIO())
    refusal(tmp_path, buffer.getvalue())
    assert not (tmp_path / "evil.py").exists()


@pytest.mark.parametrize("make", [zipped, tarred], ids=["zip", "tar"])
def test_a_bomb_is_refused_while_it_inflates(tmp_path: Path, make: Callable[[dict[str, bytes]], bytes]) -> None:
    data = make({"zeros": bytes(28_000_000)})
    assert len(data) < 100_000
    assert "it inflates to more than 20 times its size" in refusal(tmp_path, data)
    roomy = ArchiveLimits(archive_bytes=2_000_000, entries=50, inflated_bytes=11_000_000, ratio=1_000_000)
    assert "11000000" in refusal(tmp_path, data, roomy)


def test_a_zip_that_hides_its_size_is_refused_while_it_inflates(tmp_path: Path) -> None:
    data = bytearray(zipped({"zeros": bytes(28_000_000)}))
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        place = data.index(signature) + offset
        data[place : place + 4] = struct.pack("<I", 10)
    assert "it is broken" in refusal(tmp_path, bytes(data))


def test_entries_that_share_their_bytes_are_counted_each(tmp_path: Path) -> None:
    """Many names for one compressed file: the directory is written by hand."""
    zeros = zipped({"a": bytes(4_000_000)})
    where = zeros.index(b"PK\x01\x02")
    one, end = zeros[where : zeros.index(b"PK\x05\x06")], zeros[zeros.index(b"PK\x05\x06") :]
    entries = b"".join(one[:46] + bytes([97 + n]) + one[47:] for n in range(20))
    tail = end[:8] + struct.pack("<HHII", 20, 20, len(entries), where) + end[20:]
    said = refusal(tmp_path, zeros[:where] + entries + tail)
    assert "inflates" in said or "broken" in said


def test_an_archive_inside_an_archive_stays_one_file(tmp_path: Path) -> None:
    inner = zipped({"zeros": bytes(40_000_000)})
    folder = unpacked(tmp_path, zipped({"inner.zip": inner, "a.py": b""}))
    assert (folder / "inner.zip").read_bytes() == inner


def test_too_many_entries_are_refused(tmp_path: Path) -> None:
    files = {f"{number}.py": "" for number in range(60)}
    assert "50" in refusal(tmp_path, zipped(files))
    assert "50" in refusal(tmp_path, tarred(files))


def test_a_directory_of_millions_of_entries_is_not_read(tmp_path: Path) -> None:
    data = zipped({"a": ""})
    where = data.index(b"PK\x05\x06")
    end = data[where : where + 12] + struct.pack("<II", 1_900_000, 0) + data[where + 20 :]
    assert "too many entries" in refusal(tmp_path, b"PK\x03\x04" + bytes(1_900_000) + end)


def test_two_entries_of_one_name_are_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.py", "1")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a.py", "2")
    assert refusal(tmp_path, buffer.getvalue()) == "the archive: it has two entries of the name 'a.py'"
    assert "a file and a folder" in refusal(tmp_path, zipped({"a": "1", "a/b": "2"}))
    assert "twice" in refusal(tmp_path, zipped({"a/b": "2", "a": "1"}))


TWINS = [{"a.py": "1", "A.py": "2"}, {"shop/x.py": "1", "Shop/y.py": "2"}, {"é.py": "1", "e\u0301.py": "2"},
         {"straße.py": "", "STRASSE.py": ""}]  # fmt: skip


@for_each("files", TWINS)
@for_each("make", [zipped, tarred], ids=["zip", "tar"])
def test_names_that_differ_in_case_alone_are_refused(
    tmp_path: Path, files: dict[str, str], make: Callable[[dict[str, str]], bytes]
) -> None:
    assert "are one name where case does not count" in refusal(tmp_path, make(files))
    assert content(unpacked(tmp_path, make(files), dataclasses.replace(SMALL, twins=True))) == files


GARBAGE = b"garbage" * 100
ONE = {"a/x.py": "1"}
AROUND: dict[str, tuple[Callable[[], bytes], str]] = {
    "after a zip": (lambda: zipped(ONE) + GARBAGE, "after its end"),
    "zeros after a zip": (lambda: zipped(ONE) + bytes(100), "after its end"),
    "before a zip": (lambda: b"PK\x03\x04" + GARBAGE + zipped(ONE), "before its first entry"),
    "a zip after a zip": (lambda: zipped(ONE) + zipped({"b.py": "2"}), "before its first entry"),
    "after a tar.gz": (lambda: tarred(ONE) + GARBAGE, "it is broken"),
    "a second stream in a tar.gz": (lambda: tarred(ONE) + gzip.compress(GARBAGE), "after its end"),
    "after the tar in a tar.gz": (lambda: gzip.compress(tarred(ONE, "w") + GARBAGE), "after its end"),
    "after a tar.bz2": (lambda: tarred(ONE, "w:bz2") + GARBAGE, "it is broken"),
    "half a tar.bz2": (lambda: tarred(ONE, "w:bz2")[:-20], "it is broken"),
    "a second tar": (lambda: tarred(ONE, "w") + tarred({"b.py": "2"}, "w"), "after its end"),
}


@for_each("what", AROUND)
def test_what_is_around_an_archive_is_refused(tmp_path: Path, what: str) -> None:
    make, said = AROUND[what]
    assert said in refusal(tmp_path, make())


def test_what_tools_put_at_the_end_of_an_archive_is_taken(tmp_path: Path) -> None:
    buffer = io.BytesIO(zipped(ONE))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.comment = b"5f0c1b2a9d3e"  # as git does
    assert unpacked(tmp_path / "zip", buffer.getvalue()).exists()
    assert unpacked(tmp_path / "padded", tarred(ONE) + bytes(500)).exists()
    assert unpacked(tmp_path / "two", b"".join(bz2.compress(each) for each in halved(tarred(ONE, "w")))).exists()


def test_a_header_that_is_broken_does_not_end_an_archive_unseen(tmp_path: Path) -> None:
    data = bytearray(tarred({"a.py": "1", "b.py": "2"}, "w"))
    data[data.index(b"b.py")] ^= 0xFF
    assert "a header that is broken" in refusal(tmp_path, bytes(data))


def test_a_name_of_a_tar_that_ends_early_is_not_cut(tmp_path: Path) -> None:
    short = tarfile.TarInfo("goodXpy").tobuf(tarfile.GNU_FORMAT).replace(b"goodX", b"good\0")
    total = sum(short[:148]) + sum(short[156:]) + 8 * 32
    data = short[:148] + b"%06o\0 " % total + short[156:] + bytes(1024)
    assert "has a NUL in it" in refusal(tmp_path, data)
    long = tarfile.TarInfo("d" * 150 + "/good").tobuf(tarfile.GNU_FORMAT).replace(b"d/good\0", b"d\0good\0")
    assert "has a NUL in it" in refusal(tmp_path, long + bytes(1024))


def halved(data: bytes) -> tuple[bytes, bytes]:
    return data[: len(data) // 2], data[len(data) // 2 :]


def test_an_archive_that_is_too_large_is_not_opened(tmp_path: Path) -> None:
    assert "2000000 are allowed" in refusal(tmp_path, zipped({"a": random.Random(1).randbytes(2_100_000)}))


WRONG = {"empty": b"", "text": b"hello", "gzip of text": b"\x1f\x8b" + bytes(20), "half a zip": zipped(project())[:300],
         "half a tar": tarred(project())[:-40], "an ELF": b"\x7fELF" + bytes(600)}  # fmt: skip


@for_each("what", WRONG)
def test_what_is_no_archive_is_refused(tmp_path: Path, what: str) -> None:
    assert refusal(tmp_path, WRONG[what]).startswith("the archive: it ")


def test_a_broken_entry_is_refused(tmp_path: Path) -> None:
    data = bytearray(zipped({"a.py": "x" * 1000 + "y" * 50}))
    data[40] ^= 0xFF
    assert "it is broken" in refusal(tmp_path, bytes(data))


def test_an_encrypted_entry_is_refused(tmp_path: Path) -> None:
    data = bytearray(zipped({"a.py": "x"}))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + offset] |= 1
    assert "encrypted" in refusal(tmp_path, bytes(data))


def test_a_header_of_a_tar_that_is_longer_than_any_is_refused(tmp_path: Path) -> None:
    with_long_name = tarred({"a" * 3_000_000: ""}, "w:gz")
    assert "too long" in refusal(tmp_path, with_long_name)


def tar_header(kind: bytes, size: int, name: str = "x") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.USTAR_FORMAT)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % tarfile.BLOCKSIZE)


def pax(**records: str) -> bytes:
    """The body of a header of keywords."""
    found = b""
    for name, value in records.items():
        line = f" {name.replace('__', '.')}={value}\n".encode()
        size = len(line) + len(str(len(line) + 3))
        found += str(size).encode() + line
    return found


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME], ids=["x", "g", "long"])
def test_headers_that_follow_each_other_without_end_are_refused(tmp_path: Path, kind: bytes) -> None:
    body = pax(comment="a" * 20)
    endless = (tar_header(kind, len(body)) + padded(body)) * 1000 + tar_header(tarfile.REGTYPE, 0)
    assert "too many headers" in refusal(tmp_path, endless + bytes(1024))


def test_headers_that_an_archive_has_too_much_of_are_refused(tmp_path: Path) -> None:
    body = pax(comment="a" * 900_000)
    each = [
        tar_header(tarfile.XGLTYPE, len(body)) + padded(body) + tar_header(tarfile.REGTYPE, 0, str(n))
        for n in range(20)
    ]
    assert "too many headers" in refusal(tmp_path, b"".join(each) + bytes(1024), ArchiveLimits())


def test_a_file_with_holes_is_refused_before_its_list_of_holes_is_read(tmp_path: Path) -> None:
    old = tar_header(tarfile.GNUTYPE_SPARSE, 512) + bytes(512)
    assert "holes" in refusal(tmp_path, old + bytes(1024))
    body = pax(GNU__sparse__major="1", GNU__sparse__minor="0", GNU__sparse__name="a", GNU__sparse__realsize="9")
    holes = padded(b"500000\n" + b"1\n" * 1_000_000)
    new = tar_header(tarfile.XHDTYPE, len(body)) + padded(body) + tar_header(tarfile.REGTYPE, len(holes)) + holes
    assert "holes" in refusal(tmp_path, new + bytes(1024), ArchiveLimits())


def test_the_header_that_git_puts_in_front_of_an_archive_is_taken(tmp_path: Path) -> None:
    body = pax(comment="0123456789abcdef")
    data = tar_header(tarfile.XGLTYPE, len(body), "pax_global_header") + padded(body) + tarred({"a.py": "1"}, "w")
    assert content(unpacked(tmp_path, data)) == {"a.py": "1"}


def test_memory_stays_bounded_whatever_an_archive_holds(tmp_path: Path) -> None:
    """300 MB of content are unpacked with 60 MB of memory, in a process of its own."""
    (tmp_path / "archive").write_bytes(zipped({f"{n}": bytes(30_000_000) for n in range(10)}))
    script = (
        "import sys, resource; from pathlib import Path; from weft.projects.archive import unpack;"
        "from weft.projects.model import ArchiveLimits; before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        "unpack(Path(sys.argv[1]), Path(sys.argv[2]), ArchiveLimits(ratio=100_000));"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "archive"), str(tmp_path / "code")]
    grown = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert sum(each.stat().st_size for each in (tmp_path / "code").iterdir()) == 300_000_000
    assert grown < 60_000, f"{grown} kB"
