"""What user code would do to leave its sandbox: every attempt is tried in the process that has this, and never raises.

It stands alone: its text is put into a spider, a script, a project that is deployed and a package that is built. An
attempt is refused where it raises ``OSError``; that it proves something is seen where it is tried without a sandbox.
"""

import ctypes
import fcntl
import os
import platform
import resource
import socket
import stat
import struct
import sys
import termios
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace as Place
from typing import Any

Attempt = Callable[[Place], None]
ATTEMPTS: dict[str, Attempt] = {}
libc = ctypes.CDLL(None, use_errno=True)
IS_INTEL = platform.machine() == "x86_64"


def attempt(act: Attempt) -> Attempt:
    ATTEMPTS[act.__name__.replace("_", " ")] = act
    return act


def reached(place: dict[str, Any]) -> tuple[list[str], int]:
    """The names of the attempts that were not refused, and how many there were."""
    found = []
    for name, act in ATTEMPTS.items():
        try:
            act(Place(**place))
        except OSError:
            continue
        found.append(name)
    return found, len(ATTEMPTS)


def told(place: dict[str, Any]) -> str:
    found, tried = reached(place)
    return f"ESCAPES of {tried}: {', '.join(found)}."


def call(intel: int, arm: int, *arguments: Any) -> int:
    """A system call by its number."""
    given = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result: int = libc.syscall(ctypes.c_long(intel if IS_INTEL else arm), *given)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def none_of(*acts: Callable[[], object]) -> None:
    """Refused only where each of them is."""
    for act in acts:
        try:
            act()
        except OSError:
            continue
        return
    raise PermissionError


def refuse_unless(reached: bool) -> None:
    if not reached:
        raise PermissionError


def in_child(act: Callable[[], object]) -> None:
    """Do it in a process that ends with it."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
        except BaseException:
            os._exit(1)
        os._exit(0)
    refuse_unless(os.waitpid(pid, 0)[1] == 0)


def opened(path: str, flags: int = os.O_RDONLY) -> None:
    os.close(os.open(path, flags))


# Files of weft, of other projects and of the machine.


@attempt
def read_the_database(p: Place) -> None:
    opened(f"{p.data}/weft.db")


@attempt
def read_the_keys(p: Place) -> None:
    opened(f"{p.data}/keys")


@attempt
def list_the_data_directory(p: Place) -> None:
    os.listdir(p.data)


@attempt
def read_the_order_of_another_run(p: Place) -> None:
    opened(f"{p.data}/runs/w1/code-other/7-1/order.json")


@attempt
def list_the_runs_of_the_worker(p: Place) -> None:
    os.listdir(f"{p.data}/runs/w1")


@attempt
def read_the_code_of_another_project(p: Place) -> None:
    opened(f"{p.data}/code/other/files/spider.py")


@attempt
def write_the_code_of_another_project(p: Place) -> None:
    opened(f"{p.data}/code/other/files/spider.py", os.O_WRONLY | os.O_APPEND)


@attempt
def make_a_file_in_the_data_directory(p: Place) -> None:
    opened(f"{p.data}/new", os.O_WRONLY | os.O_CREAT)


@attempt
def read_the_database_through_a_symbolic_link(p: Place) -> None:
    os.symlink(f"{p.data}/weft.db", f"{p.own}/symbolic")
    opened(f"{p.own}/symbolic")


@attempt
def read_the_database_through_a_hard_link(p: Place) -> None:
    os.link(f"{p.data}/weft.db", f"{p.own}/hard")
    opened(f"{p.own}/hard")


@attempt
def read_the_database_through_the_root_of_its_own_process(p: Place) -> None:
    opened(f"/proc/self/root{p.data}/weft.db")


@attempt
def read_the_database_through_the_root_of_the_worker(p: Place) -> None:
    opened(f"/proc/{p.worker}/root{p.data}/weft.db")


@attempt
def look_into_the_working_directory_of_the_worker(p: Place) -> None:
    os.listdir(f"/proc/{p.worker}/cwd")


@attempt
def read_the_database_by_its_handle(p: Place) -> None:
    handle, mount = ctypes.create_string_buffer(struct.pack("Ii128x", 128, 0)), ctypes.c_int()
    call(303, 264, -100, f"{p.data}/weft.db".encode(), handle, ctypes.byref(mount), 0)
    folder = os.open(p.own, os.O_RDONLY)
    try:
        os.close(call(304, 265, folder, handle, os.O_RDONLY))
    finally:
        os.close(folder)


@attempt
def rename_a_file_of_weft(p: Place) -> None:
    os.rename(f"{p.data}/to-rename", f"{p.own}/renamed")


@attempt
def delete_a_file_of_weft(p: Place) -> None:
    os.unlink(f"{p.data}/to-delete")


@attempt
def empty_a_file_of_weft_by_name(p: Place) -> None:
    os.truncate(f"{p.data}/to-empty", 0)


@attempt
def empty_a_file_of_weft_by_opening_it(p: Place) -> None:
    opened(f"{p.data}/to-empty", os.O_RDONLY | os.O_TRUNC)


@attempt
def write_the_packages_of_weft(p: Place) -> None:
    opened(p.package, os.O_WRONLY | os.O_APPEND)


@attempt
def write_the_library_of_its_python(p: Place) -> None:
    opened(os.__file__, os.O_WRONLY | os.O_APPEND)


@attempt
def read_the_passwords_of_the_machine(p: Place) -> None:
    opened("/etc/shadow")


@attempt
def write_the_system(p: Place) -> None:
    name = f"weft-escape-{os.getpid()}"

    def make(folder: str) -> None:
        opened(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT)
        os.unlink(f"{folder}/{name}")

    none_of(lambda: make("/etc"), lambda: make("/usr"), lambda: make("/usr/lib"), lambda: make("/var"))


@attempt
def list_the_home_of_its_user(p: Place) -> None:
    os.listdir(p.home)


@attempt
def read_the_temporary_file_of_another(p: Place) -> None:
    opened(f"{p.tmp}/file")


@attempt
def write_into_the_temporary_folder_of_another(p: Place) -> None:
    opened(f"{p.tmp}/new", os.O_WRONLY | os.O_CREAT)


@attempt
def read_the_shared_memory_of_another(p: Place) -> None:
    opened(p.shm)


@attempt
def make_a_file_that_runs_as_its_owner(p: Place) -> None:
    def by_name() -> None:
        opened(f"{p.own}/owned", os.O_WRONLY | os.O_CREAT)
        os.chmod(f"{p.own}/owned", 0o4700)

    def by_descriptor() -> None:
        number = os.open(f"{p.own}/owned-too", os.O_WRONLY | os.O_CREAT)
        try:
            os.fchmod(number, 0o4700)
        finally:
            os.close(number)

    def at_once() -> None:
        os.close(os.open(f"{p.own}/owned-at-once", os.O_WRONLY | os.O_CREAT, 0o4700))
        refuse_unless(os.stat(f"{p.own}/owned-at-once").st_mode & stat.S_ISUID != 0)

    def as_a_node() -> None:
        os.mknod(f"{p.own}/owned-node", stat.S_IFREG | 0o4700)
        refuse_unless(os.stat(f"{p.own}/owned-node").st_mode & stat.S_ISUID != 0)

    def by_folder() -> None:
        # fchmodat2, which no older Python calls
        opened(f"{p.own}/owned-at", os.O_WRONLY | os.O_CREAT)
        call(452, 452, -100, f"{p.own}/owned-at".encode(), 0o4700, 0)

    none_of(by_name, by_descriptor, at_once, as_a_node, by_folder)


@attempt
def make_a_device(p: Place) -> None:
    os.mknod(f"{p.own}/device", stat.S_IFCHR | 0o600, os.makedev(1, 3))


@attempt
def change_the_mode_of_the_database(p: Place) -> None:
    os.chmod(f"{p.data}/weft.db", 0o600)


@attempt
def change_the_times_of_the_database(p: Place) -> None:
    os.utime(f"{p.data}/weft.db")


@attempt
def change_the_attributes_of_the_database(p: Place) -> None:
    os.setxattr(f"{p.data}/weft.db", "user.weft", b"x")


@attempt
def learn_the_size_of_the_database(p: Place) -> None:
    os.stat(f"{p.data}/weft.db")


@attempt
def watch_the_names_in_the_data_directory(p: Place) -> None:
    number = libc.inotify_init1(0)
    refuse_unless(number >= 0)
    try:
        refuse_unless(libc.inotify_add_watch(number, p.data.encode(), 0x100) >= 0)
    finally:
        os.close(number)


# Other processes.


@attempt
def read_the_environment_of_the_worker(p: Place) -> None:
    opened(f"/proc/{p.worker}/environ")
    with open(f"/proc/{p.worker}/environ", "rb") as file:
        file.read(1)


@attempt
def read_the_memory_of_the_worker(p: Place) -> None:
    opened(f"/proc/{p.worker}/mem")


@attempt
def see_the_files_of_the_worker(p: Place) -> None:
    os.readlink(f"/proc/{p.worker}/fd/0")


@attempt
def copy_the_memory_of_the_worker(p: Place) -> None:
    try:
        with open(f"/proc/{p.worker}/maps") as file:
            at = int(next(line for line in file if " r" in line).partition("-")[0], 16)
    except OSError:
        at = 0x400000
    kept = ctypes.create_string_buffer(8)
    ours = struct.pack("PL", ctypes.addressof(kept), 8)
    theirs = struct.pack("PL", at, 8)
    call(310, 270, p.worker, ours, 1, theirs, 1, 0)


@attempt
def trace_another_process(p: Place) -> None:
    in_child(lambda: refuse_unless(libc.ptrace(0x4206, p.victim, None, None) == 0))


@attempt
def take_an_open_file_of_the_worker(p: Place) -> None:
    number = call(434, 434, p.worker, 0)
    try:
        os.close(call(438, 438, number, 0, 0))
    finally:
        os.close(number)


@attempt
def signal_the_worker(p: Place) -> None:
    os.kill(p.worker, 0)


@attempt
def signal_a_process_of_another_run(p: Place) -> None:
    os.kill(p.victim, 0)


@attempt
def signal_the_group_of_another_run(p: Place) -> None:
    os.killpg(p.victim, 0)


@attempt
def signal_another_run_by_a_descriptor(p: Place) -> None:
    number = call(434, 434, p.victim, 0)
    try:
        call(424, 424, number, 0, None, 0)
    finally:
        os.close(number)


@attempt
def have_the_kernel_signal_the_worker(p: Place) -> None:
    """By a pipe that belongs to the worker. It arrives or does not: the worker says which."""
    reads, writes = os.pipe()
    try:
        fcntl.fcntl(reads, fcntl.F_SETOWN, p.worker)
        fcntl.fcntl(reads, 10, p.signal)  # F_SETSIG
        fcntl.fcntl(reads, fcntl.F_SETFL, os.O_NONBLOCK | fcntl.FASYNC)
        os.write(writes, b"x")
    finally:
        os.close(reads)
        os.close(writes)
    raise PermissionError


@attempt
def change_a_limit_of_the_worker(p: Place) -> None:
    resource.prlimit(p.worker, resource.RLIMIT_CORE, resource.prlimit(p.worker, resource.RLIMIT_CORE))


@attempt
def change_the_priority_of_the_worker(p: Place) -> None:
    os.setpriority(os.PRIO_PROCESS, p.worker, os.getpriority(os.PRIO_PROCESS, p.worker))


@attempt
def change_the_scheduling_of_the_worker(p: Place) -> None:
    os.sched_setscheduler(p.worker, os.SCHED_OTHER, os.sched_param(0))


@attempt
def change_the_processors_of_the_worker(p: Place) -> None:
    os.sched_setaffinity(p.worker, os.sched_getaffinity(p.worker))


@attempt
def change_the_priority_of_the_disk_for_the_worker(p: Place) -> None:
    call(251, 30, 1, p.worker, 2 << 13 | 4)


@attempt
def have_a_secret_of_the_worker_in_its_environment(p: Place) -> None:
    refuse_unless("of the worker" in "".join(os.environ.values()))


@attempt
def have_a_file_of_the_worker_open(p: Place) -> None:
    def is_theirs(number: str) -> bool:
        try:
            return os.readlink(f"/proc/self/fd/{number}").startswith(p.data)
        except OSError:
            return False

    refuse_unless(any(is_theirs(number) for number in os.listdir("/proc/self/fd")))


# What the kernel has.


@attempt
def gain_privileges_by_starting_a_program(p: Place) -> None:
    refuse_unless(libc.prctl(39, 0, 0, 0, 0) == 0)


@attempt
def become_another_user(p: Place) -> None:
    in_child(lambda: os.setresuid(4242, 4242, 4242))


@attempt
def mount_a_file_system(p: Place) -> None:
    os.makedirs(f"{p.own}/mounted", exist_ok=True)
    refuse_unless(libc.mount(b"none", f"{p.own}/mounted".encode(), b"tmpfs", 0, None) == 0)
    libc.umount2(f"{p.own}/mounted".encode(), 2)


@attempt
def change_its_root(p: Place) -> None:
    in_child(lambda: os.chroot(p.own))


@attempt
def enter_the_namespaces_of_the_worker(p: Place) -> None:
    number = os.open(f"/proc/{p.worker}/ns/net", os.O_RDONLY)
    try:
        in_child(lambda: refuse_unless(libc.setns(number, 0) == 0))
    finally:
        os.close(number)


@attempt
def make_a_namespace_of_users(p: Place) -> None:
    in_child(lambda: refuse_unless(libc.unshare(0x10000000) == 0))


@attempt
def make_an_io_ring(p: Place) -> None:
    os.close(call(425, 425, 1, ctypes.create_string_buffer(120)))


@attempt
def use_the_keys_of_the_kernel(p: Place) -> None:
    call(250, 219, 0, -3, 0)


@attempt
def leave_memory_behind(p: Place) -> None:
    number = call(29, 194, 0, 4096, 0o1600)
    call(31, 195, number, 0, None)


@attempt
def leave_a_semaphore_behind(p: Place) -> None:
    number = call(64, 190, 0, 1, 0o1600)
    call(66, 191, number, 0, 0)


@attempt
def leave_a_queue_behind(p: Place) -> None:
    number = call(68, 186, 0, 0o1600)
    call(71, 187, number, 0, None)


@attempt
def leave_a_named_queue_behind(p: Place) -> None:
    name = f"weft-escape-{os.getpid()}".encode()
    os.close(call(240, 180, name, os.O_CREAT | os.O_RDWR, 0o600, None))
    call(241, 181, name)


@attempt
def leave_a_core_dump(p: Place) -> None:
    refuse_unless(resource.getrlimit(resource.RLIMIT_CORE)[1] != 0)


@attempt
def change_what_happens_to_core_dumps(p: Place) -> None:
    opened("/proc/sys/kernel/core_pattern", os.O_WRONLY)


@attempt
def change_a_setting_of_the_kernel(p: Place) -> None:
    opened("/proc/sys/vm/swappiness", os.O_WRONLY)


@attempt
def change_a_control_group(p: Place) -> None:
    places = [place for place, folders, files in os.walk("/sys/fs/cgroup") if "cgroup.procs" in files][:20]
    none_of(
        lambda: opened("/sys/fs/cgroup/cgroup.procs", os.O_WRONLY),
        *(partial(opened, f"{place}/cgroup.procs", os.O_WRONLY) for place in places),
    )


@attempt
def read_the_log_of_the_kernel(p: Place) -> None:
    none_of(lambda: opened("/dev/kmsg"), lambda: call(103, 116, 3, ctypes.create_string_buffer(64), 64))


@attempt
def open_the_terminal_of_another(p: Place) -> None:
    opened(p.terminal, os.O_RDWR | os.O_NOCTTY)


@attempt
def type_into_the_terminal_of_another(p: Place) -> None:
    number = os.open(p.terminal, os.O_RDWR | os.O_NOCTTY)
    try:
        fcntl.ioctl(number, termios.TIOCSTI, b"x")
    finally:
        os.close(number)


# The network.


@attempt
def connect_to_a_socket_by_its_name(p: Place) -> None:
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(p.socket)


@attempt
def connect_to_an_abstract_socket(p: Place) -> None:
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(f"\0{p.abstract}")


@attempt
def connect_to_a_port_of_this_machine(p: Place) -> None:
    with socket.socket() as line:
        line.settimeout(10)
        line.connect(("127.0.0.1", p.port))


@attempt
def send_a_datagram(p: Place) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.sendto(b"x", ("127.0.0.1", p.port))


@attempt
def listen_for_connections(p: Place) -> None:
    with socket.socket() as ear:
        ear.listen()


@attempt
def bind_a_port(p: Place) -> None:
    with socket.socket() as ear:
        ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # the test holds it, so that nobody else takes it
        ear.bind(("127.0.0.1", p.free_port))


@attempt
def bind_a_port_for_datagrams(p: Place) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear:
        ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        ear.bind(("127.0.0.1", p.free_port))


@attempt
def forge_packets(p: Place) -> None:
    none_of(
        lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close(),
        lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP).close(),
    )


if __name__ == "__main__":
    import json

    sys.stdout.write(told(json.loads(sys.argv[1])) + "\n")
