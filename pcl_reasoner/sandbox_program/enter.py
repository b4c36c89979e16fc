"""Makes a sandbox with the kernel's own calls, where bubblewrap is not installed.

    python -I -S -c SOURCE '{"uid": 64003, "gid": 64003, "folders": ["/usr"], "links": {"/bin":
        "usr/bin"}, "disk_megabytes": 32, "filter": "06000000…"}'

New namespaces of users, mounts, processes, network, IPC, host name and cgroups; a root of read-only
folders; no capabilities; the filter of system calls. Then this process is process 1 of the sandbox.
"""

from __future__ import annotations

import ctypes
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pcl_reasoner.sandbox_program.messages import loads

NEW_USER, NEW_PROCESSES = 0x10000000, 0x20000000
NEW_REST = 0x00020000 | 0x40000000 | 0x08000000 | 0x04000000 | 0x02000000
"""Mounts, network, IPC, host name, cgroups."""
READ_ONLY, NO_SUID, NO_DEVICES, NO_EXEC, REMOUNT, BIND = 1, 2, 4, 8, 32, 4096
RECURSIVE, PRIVATE, NO_ATIME, NO_DIR_ATIME, RELATIVE_ATIME = 16384, 1 << 18, 1024, 2048, 1 << 21
DETACH = 2
KILL = 9
PARENT_DEATH, SECCOMP, DROP_BOUNDING, NO_NEW_PRIVILEGES = 1, 22, 24, 38
DEVICES = ("null", "zero", "full", "random", "urandom")
ROOT = "/tmp"
"""Where the new root is put together."""


class Filter(ctypes.Structure):
    """The kernel's ``struct sock_fprog``."""

    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def enter() -> None:
    """Make the sandbox; return in its process 1. The process that was called waits, and ends."""
    settings: dict[str, Any] = loads(sys.argv[1])
    _call("unshare", NEW_USER | NEW_PROCESSES | NEW_REST)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"1000 {settings['uid']} 1")
    _write("/proc/self/gid_map", f"1000 {settings['gid']} 1")
    # Not earlier: with new credentials the kernel forgets it.
    _call("prctl", PARENT_DEATH, KILL, 0, 0, 0)
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 255)
    _call("prctl", PARENT_DEATH, KILL, 0, 0, 0)
    _make_root(settings)
    os.setsid()
    _drop_capabilities()
    if settings["filter"]:
        code = bytes.fromhex(settings["filter"])
        program = Filter(len(code) // 8, code)
        _call("prctl", SECCOMP, 2, ctypes.byref(program), 0, 0)
    os.chdir("/tmp")


def _call(name: str, *args: Any) -> None:
    """Call a function of the C library; an error ends the process with a sentence."""
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*args):
        paths = [name, *(path.decode() for path in args[:2] if isinstance(path, bytes))]
        sys.stderr.write(f"{' '.join(paths)}: {os.strerror(ctypes.get_errno())}\n")
        sys.stderr.flush()
        os._exit(1)


def _write(file: str, text: str) -> None:
    with open(file, "w", encoding="ascii") as handle:
        handle.write(text)


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    texts = [None if not text else text.encode() for text in (source, target, kind, options)]
    _call("mount", texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])


def _make_root(settings: dict[str, Any]) -> None:
    """Replace the file system by read-only folders, /proc, some devices and an empty /tmp."""
    _mount("none", "/", "", RECURSIVE | PRIVATE)
    _mount("tmpfs", ROOT, "tmpfs", NO_SUID | NO_DEVICES, "size=1m,nr_inodes=1000,mode=755")
    for folder in settings["folders"]:
        os.makedirs(ROOT + folder)
        _bind(folder, ROOT + folder)
    for link, target in settings["links"].items():
        os.symlink(target, ROOT + link)
    os.mkdir(f"{ROOT}/dev")
    for name in DEVICES:
        _write(f"{ROOT}/dev/{name}", "")
        _mount(f"/dev/{name}", f"{ROOT}/dev/{name}", "", BIND)
    os.mkdir(f"{ROOT}/proc")
    _mount("proc", f"{ROOT}/proc", "proc", NO_SUID | NO_DEVICES | NO_EXEC)
    os.mkdir(f"{ROOT}/tmp")
    size = settings["disk_megabytes"]
    options = f"size={size}m,nr_inodes=10000,mode=700"
    _mount("tmpfs", f"{ROOT}/tmp", "tmpfs", NO_SUID | NO_DEVICES, options)
    os.chdir(ROOT)
    # This puts the old root over the new one, from which it is then taken away.
    _call("pivot_root", b".", b".")
    _call("umount2", b".", DETACH)
    os.chdir("/")
    _mount("none", "/", "", REMOUNT | BIND | READ_ONLY | NO_SUID | NO_DEVICES)


def _bind(source: str, target: str) -> None:
    """Show a folder read-only."""
    _mount(source, target, "", BIND | RECURSIVE)
    given = os.statvfs(target).f_flag
    # Flags that the mount has already may not be taken from it.
    kept = {os.ST_NOEXEC: NO_EXEC, os.ST_NODEV: NO_DEVICES, os.ST_NOATIME: NO_ATIME}
    kept |= {os.ST_NODIRATIME: NO_DIR_ATIME, os.ST_RELATIME: RELATIVE_ATIME}
    flags = sum(flag for bit, flag in kept.items() if given & bit)
    _mount("none", target, "", REMOUNT | BIND | READ_ONLY | NO_SUID | flags)


def _drop_capabilities() -> None:
    """Give up all capabilities for ever."""
    library = ctypes.CDLL(None)
    number = 0
    while library.prctl(DROP_BOUNDING, number, 0, 0, 0) == 0:
        number += 1
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _call("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))
    _call("prctl", NO_NEW_PRIVILEGES, 1, 0, 0, 0)
