"""A filter of system calls for candidates, as a program for the kernel (classic BPF).

Denied are the calls with which a process could reach what namespaces do not separate, or make new
namespaces, or read another process. Python, threads, subprocesses and g++ need none of them.

    load the architecture; another one: kill
    load the number; of x32: "no such call"
    a number of DENIED: "not permitted"
    clone with a flag of a new namespace: "not permitted";  clone3: "no such call", so that C
        libraries use clone, whose flags can be read
    socket of a family other than UNIX and IP: "not permitted" (AF_VSOCK would reach the host)
    everything else: allowed

Numbers: Linux, asm/unistd_64.h (x86-64) and asm-generic/unistd.h (aarch64). The table of aarch64
was compared with these headers, and has not run.
"""

import platform
import struct
from dataclasses import dataclass

ALLOW = 0x7FFF0000
KILL = 0x80000000
ERROR = 0x00050000
EPERM, ENOSYS = 1, 38
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
"""Offsets in the kernel's ``struct seccomp_data``."""
NEW_NAMESPACE = 0x7E020080
"""All flags of clone that make a namespace."""
FAMILIES = (1, 2, 10)
"""AF_UNIX, AF_INET, AF_INET6."""


@dataclass(frozen=True)
class Machine:
    """Numbers of an architecture.

    Args:
        audit: Its AUDIT_ARCH number.
        clone: Number of clone.
        clone3: Number of clone3.
        socket: Number of socket.
        denied: Name of a denied call -> its number.
        x32: Whether numbers from 0x40000000 are another interface to the same kernel.
    """

    audit: int
    clone: int
    clone3: int
    socket: int
    denied: dict[str, int]
    x32: bool


_NEW = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "pidfd_getfd": 438,
    "mount_setattr": 442,
    "memfd_secret": 447,
}
"""Since 2019 a call has the same number everywhere."""


def _table(text: str) -> dict[str, int]:
    pairs = (item.split("=") for item in text.split())
    return {name: int(number) for name, number in pairs} | _NEW


MACHINES = {
    "x86_64": Machine(
        audit=0xC000003E,
        clone=56,
        clone3=435,
        socket=41,
        denied=_table(
            "shmget=29 semget=64 msgget=68 ptrace=101 syslog=103 personality=135 pivot_root=155"
            " chroot=161 acct=163 mount=165 umount2=166 swapon=167 swapoff=168 reboot=169"
            " sethostname=170 setdomainname=171 iopl=172 ioperm=173 init_module=175"
            " delete_module=176 quotactl=179 add_key=248 request_key=249 keyctl=250 mq_open=240"
            " kexec_load=246 unshare=272 perf_event_open=298 fanotify_init=300"
            " name_to_handle_at=303 open_by_handle_at=304 setns=308 process_vm_readv=310"
            " process_vm_writev=311 kcmp=312 finit_module=313 memfd_create=319"
            " kexec_file_load=320 bpf=321 userfaultfd=323"
        ),
        x32=True,
    ),
    "aarch64": Machine(
        audit=0xC00000B7,
        clone=220,
        clone3=435,
        socket=198,
        denied=_table(
            "umount2=39 mount=40 pivot_root=41 chroot=51 quotactl=60 acct=89 personality=92"
            " unshare=97 kexec_load=104 init_module=105 delete_module=106 syslog=116 ptrace=117"
            " reboot=142 sethostname=161 setdomainname=162 mq_open=180 msgget=186 semget=190"
            " shmget=194 add_key=217 request_key=218 keyctl=219 swapon=224 swapoff=225"
            " perf_event_open=241 fanotify_init=262 name_to_handle_at=264 open_by_handle_at=265"
            " setns=268 process_vm_readv=270 process_vm_writev=271 kcmp=272 finit_module=273"
            " memfd_create=279 bpf=280 userfaultfd=282 kexec_file_load=294"
        ),
        x32=False,
    ),
}


def _do(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """One instruction; the jumps are the numbers of instructions to skip."""
    return struct.pack("HBBI", code, if_true, if_false, value)


def machine() -> Machine | None:
    """This computer's architecture; None if there is no table for it."""
    return MACHINES.get(platform.machine())


def filter_program(target: Machine) -> bytes:
    """Return the filter as an array of ``struct sock_filter``."""
    not_permitted, no_such_call = _do(_RETURN, ERROR | EPERM), _do(_RETURN, ERROR | ENOSYS)
    program = [
        _do(_LOAD, _ARCHITECTURE),
        _do(_EQUAL, target.audit, if_true=1),
        _do(_RETURN, KILL),
        _do(_LOAD, _NUMBER),
    ]
    if target.x32:
        program += [_do(_AT_LEAST, 0x40000000, if_false=1), no_such_call]
    for number in sorted(target.denied.values()):
        program += [_do(_EQUAL, number, if_false=1), not_permitted]
    program += [_do(_EQUAL, target.clone3, if_false=1), no_such_call]
    program += [
        _do(_EQUAL, target.clone, if_false=4),
        _do(_LOAD, _FIRST_ARGUMENT),
        _do(_ANY_BIT, NEW_NAMESPACE, if_false=1),
        not_permitted,
        _do(_RETURN, ALLOW),
        _do(_EQUAL, target.socket, if_false=len(FAMILIES) + 2),
        _do(_LOAD, _FIRST_ARGUMENT),
    ]
    for place, family in enumerate(FAMILIES):
        program.append(_do(_EQUAL, family, if_true=len(FAMILIES) - place))
    program += [not_permitted, _do(_RETURN, ALLOW)]
    return b"".join(program)
